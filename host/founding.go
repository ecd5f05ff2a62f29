package host

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/founding"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// openFounding makes the founding list that of the log, if it has one, and that of the configuration if not.
func (g *Group) openFounding() error {
	if g.members.founding.IsFounded() {
		return nil // a snapshot has said so
	}
	if err := g.members.founding.Read(g.writes.storage.log); err != nil {
		return err
	}
	found := g.members.founding.Found()
	switch {
	case found == nil && g.members.Joins:
		return nil // it learns of the list by the entry
	case found == nil:
		if len(g.writes.storage.Conf.Voters) == 0 { // or a snapshot that was restored from an archive has set it
			g.writes.storage.Conf = raftpb.ConfState{Voters: g.memberIDs()}
		}
		return g.rejectOutsider()
	case !g.members.founding.TakesCommands() && !g.members.Joins:
		if err := g.members.RejectBinding(found.Bound); err != nil {
			return err
		}
	}
	ids := found.Bound.IDs()
	g.members.Rosters.SetIDs(ids)
	g.writes.storage.Conf = raftpb.ConfState{Voters: ids}
	if g.members.Joins {
		return nil
	}
	return g.members.RejectDirectory(found.Bound)
}

// rejectOutsider rejects a host that is not in the founding list of a new group.
func (g *Group) rejectOutsider() error {
	if slices.Contains(g.memberIDs(), g.self) {
		return nil
	}
	return fmt.Errorf("millrace: Members of group %d is %v, without this host, %d; open a new group on its founding members only, or set Joins where a member will be added later", g.id, g.memberIDs(), g.self)
}

// holdCommands decides whether commands stay in the inbox.
func (g *Group) holdCommands() (released bool) {
	hold := g.core.node.BasicStatus().RaftState == raft.StateLeader && g.members.founding.Holds()
	return g.inbox.pause(hold) && !hold
}

// foundingDue returns the tick at which commands are no longer held.
func (g *Group) foundingDue() int64 {
	return g.members.founding.Due()
}

// observeEntries notes the entries of the host among those that are appended to this host's log.
func (g *Group) observeEntries(entries []raftpb.Entry) {
	g.recordMembers(entries)
	g.members.founding.Append(entries)
}

// observeCommitted puts in force what is committed through an index, before it is handed to the state
// machine.
func (g *Group) observeCommitted(through uint64) {
	g.members.founding.Commit(through)
	g.commitMembers(through)
}

// advanceFounding is a duty: the next step of the founding.
func (g *Group) advanceFounding() (again bool) { return g.members.founding.Step() }

func (g *Group) foundingSettings() founding.Settings {
	return founding.Settings{
		Member:   founding.Member{Group: g.id, Self: g.self, Leases: g.config.Leases, Promise: g.host.config.promiseTime()},
		Election: int64(g.host.config.electionTicks()),
	}
}

// promiseTime is how long a promise lasts by the clock of the member that makes it. A lease lasts as long as
// the entry found says, which no member's promise is shorter than (founding.Member): the election timeouts of
// hosts may differ, and change between starts.
func (c Config) promiseTime() time.Duration {
	return time.Duration(c.electionTicks()) * c.tickPeriod()
}

// foundingWiring is the group as its founding sees it: founding.Wiring.
type foundingWiring Group

func (g *foundingWiring) Core() founding.Core { return g.core.node }
func (g *foundingWiring) Now() int64          { return g.core.at.Ticks }
func (g *foundingWiring) Joins() bool         { return g.members.Joins }
func (g *foundingWiring) IDs() []uint64       { return (*Group)(g).memberIDs() }
func (g *foundingWiring) Unmet() []uint64     { return g.members.Unmet() }
func (g *foundingWiring) Campaign()           { (*Group)(g).campaign() }
func (g *foundingWiring) Stop(err error)      { (*Group)(g).fail(err) }

func (g *foundingWiring) RejectBinding(b entry.Binding) error { return g.members.RejectBinding(b) }

func (g *foundingWiring) EntryTerm(index uint64) (term uint64, ok bool) {
	if g.core.node != nil {
		return g.core.node.EntryTerm(index)
	}
	term, err := g.writes.storage.log.Term(index)
	return term, err == nil
}

func (g *foundingWiring) AreReady() bool {
	return g.host.network.handshakes.AreReady((*Group)(g).memberIDs(), g.self)
}

func (g *foundingWiring) Incarnation(id uint64) (i transport.Incarnation, known bool) {
	if id == g.self {
		return g.host.incarnation(), true
	}
	return g.host.trust.admission.Incarnation(id)
}

func (g *foundingWiring) AskSilent() {
	now := g.host.clock.awakeAtBeat()
	for _, id := range (*Group)(g).memberIDs() {
		if p := g.host.network.handshakes.Of(id); p != nil && now-p.HeardAt.Load() > int64(g.host.config.electionTicks()/2) {
			g.host.askIfAlive(id, now)
		}
	}
}

func (g *foundingWiring) Propose(data []byte) (proposed bool) {
	if v := (*Group)(g).begunVersion(); v != nil && data[0] == entry.FoundedKind && !g.propose(v) {
		return false
	}
	return g.propose(data)
}

func (g *foundingWiring) propose(data []byte) (proposed bool) {
	e := raftpb.Entry{Type: raftpb.EntryHost, Data: data}
	if err := g.core.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: g.self, Entries: []raftpb.Entry{e}}); err != nil {
		if !errors.Is(err, raft.ErrProposalDropped) {
			(*Group)(g).countRefusal(err)
		}
		return false
	}
	st := g.core.node.BasicStatus()
	e.Term, e.Index = st.Term, st.LastIndex
	(*Group)(g).observeEntries([]raftpb.Entry{e})
	return true
}

func (g *foundingWiring) Rebound() {
	if g.members.Joins {
		(*Group)(g).adoptFounders()
	} else if g.members.founding.Bound() == nil {
		(*Group)(g).countUnfounded()
	} else {
		(*Group)(g).countFounded()
	}
	g.members.SetExcluded()
}

func (g *foundingWiring) Founded() {
	g.work.wanted.Want(turn.All)
	g.members.commits.Found(*g.members.founding.Bound())
	(*Group)(g).keepFound()
}

func (g *foundingWiring) Announce() {
	g.host.reports.events.Emit(event.GroupFounded{Group: g.id})
	g.host.env.logger.Info("group founded", "group", g.id, "host", g.self, "members", (*Group)(g).memberIDs())
}
