package host

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/founding"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// foundingLog is the log of a group as the founding sees it: founding.Log.
type foundingLog Group

func (g *foundingLog) EntryTerm(index uint64) (term uint64, ok bool) {
	if g.core.node != nil {
		return g.core.node.EntryTerm(index)
	}
	term, err := g.writes.storage.log.Term(index)
	return term, err == nil
}

// foundingPage bounds one read of the log in search of founding entries.
const foundingPage = 64 << 10

// openFounding makes the founding list that of the log, if it has one, and that of the configuration if not.
func (g *Group) openFounding() error {
	if g.members.founding.IsFounded() {
		return nil // a snapshot has said so
	}
	if err := g.readFounding(); err != nil {
		return err
	}
	found := g.members.founding.Found()
	switch {
	case found == nil && g.members.joins:
		return nil // it learns of the list by the entry
	case found == nil:
		if len(g.writes.storage.Conf.Voters) == 0 { // or a snapshot that was restored from an archive has set it
			g.writes.storage.Conf = raftpb.ConfState{Voters: g.memberIDs()}
		}
		return g.rejectOutsider()
	case !g.members.founding.TakesCommands() && !g.members.joins:
		if err := g.rejectBinding(found.Bound); err != nil {
			return err
		}
	}
	ids := found.Bound.IDs()
	g.members.rosters.SetIDs(ids)
	g.writes.storage.Conf = raftpb.ConfState{Voters: ids}
	if g.members.joins {
		return nil
	}
	return g.rejectDirectory(found.Bound)
}

// rejectOutsider rejects a host that is not in the founding list of a new group.
func (g *Group) rejectOutsider() error {
	if slices.Contains(g.memberIDs(), g.self) {
		return nil
	}
	return fmt.Errorf("millrace: Members of group %d is %v, without this host, %d; open a new group on its founding members only, or set Joins where a member will be added later", g.id, g.memberIDs(), g.self)
}

// readFounding reads the founding entries from the log when a group is opened. They come before the first
// command, so little is read.
func (g *Group) readFounding() error {
	log := g.writes.storage.log
	for lo, last := log.FirstIndex(), log.LastIndex(); lo <= last; {
		page, err := log.Entries(lo, last+1, foundingPage)
		if err != nil {
			return fmt.Errorf("millrace: read the founding of group %d: %w", g.id, err)
		}
		for i := range page {
			switch e := &page[i]; {
			case e.Type == raftpb.EntryHost && entry.IsMemberEntry(e.Type, e.Data):
			case e.Type == raftpb.EntryHost:
				if err := g.addFounding(e.Index, e.Term, e.Data); err != nil {
					return err
				}
			case len(e.Data) > 0:
				if !g.members.founding.TakesCommands() {
					return fmt.Errorf("millrace: group %d has a command at index %d of its log and no founding before it; the log was written by an older program, and there is no migration: found the group again with empty directories",
						g.id, e.Index)
				}
				g.members.founding.Open()
				return nil
			}
		}
		lo += uint64(len(page))
	}
	g.members.founding.Open()
	return nil
}

// addFounding notes a founding entry of this host's log. An error means that this member must stop.
func (g *Group) addFounding(index, term uint64, data []byte) error {
	b, err := entry.DecodeFounding(data)
	if err != nil {
		return fmt.Errorf("%w (group %d, index %d)", err, g.id, index)
	}
	if b != nil {
		if g.core.node != nil {
			err = g.rejectBinding(b)
		}
		if err := cmp.Or(err, g.rejectPromises(data)); err != nil {
			return err
		}
	}
	e := founding.Entry{Index: index, Term: term, Bound: b}
	if b != nil {
		e.Promise = entry.PromiseOf(data)
	}
	g.members.founding.Add(e)
	return nil
}

func (g *Group) commitFounding(through uint64) {
	ends, isNews := g.members.founding.Commit(through)
	if !ends {
		return
	}
	g.work.wanted.Want(turn.All)
	g.foundRoster(*g.members.founding.Bound())
	g.keepFound()
	g.publishFounding()
	g.members.founding.Forget()
	if isNews {
		g.host.reports.events.Emit(event.GroupFounded{Group: g.id})
		g.host.env.logger.Info("group founded", "group", g.id, "host", g.self, "members", g.memberIDs())
	}
}

// setBound puts the binding of this host's log in force.
func (g *Group) setBound() {
	if !g.members.founding.SetBound() {
		return
	}
	if g.members.joins {
		g.adoptFounders()
	} else if g.members.founding.Bound() == nil {
		g.countUnfounded()
	} else {
		g.countFounded()
	}
	g.setRefuses()
}

// advanceFounding takes the next step of the founding, if this member leads or is the first to campaign.
func (g *Group) advanceFounding() (again bool) {
	if g.members.founding.IsFounded() {
		return false
	}
	g.setBound()
	if g.members.joins {
		return true
	}
	st := g.core.node.BasicStatus()
	leads := st.RaftState == raft.StateLeader
	g.members.founding.Leads(leads, g.core.at.Ticks)
	if !leads {
		g.campaignFirst(st)
		if st.Lead == raft.None {
			g.askFounders()
		}
		return true
	}
	if g.members.founding.TakesCommands() {
		return true
	}
	found := g.members.founding.Found()
	if found == nil {
		b, all := g.bind()
		if !all || !g.proposeFounding(g.withPromises(entry.EncodeFound(b))) {
			return true
		}
		if found = g.members.founding.Found(); len(b) > 1 {
			return true
		}
	}
	if len(g.memberIDs()) == 1 || len(g.missing(found)) == 0 {
		g.proposeFounding(entry.EncodeFounded())
	}
	return true
}

// campaignFirst makes the member with the lowest id campaign in a new group as soon as all members can vote.
// It may have asked for votes before, of members that could not: without this it would wait for its timeout.
func (g *Group) campaignFirst(st raft.BasicStatus) {
	if g.members.founding.HasCampaigned() || st.Lead != raft.None || g.self != g.memberIDs()[0] {
		return
	}
	if !g.host.network.handshakes.AreReady(g.memberIDs(), g.self) || len(g.unmet()) > 0 {
		return
	}
	g.members.founding.SetCampaigned()
	g.campaign()
}

// askFounders asks the hosts of the members whether they are alive, since a member that may not vote yet says
// nothing by itself. Without that a host would seem to be down that waits, as this one does.
func (g *Group) askFounders() {
	now := g.host.clock.livedAtBeat()
	for _, id := range g.memberIDs() {
		if p := g.host.network.handshakes.Of(id); p != nil && now-p.HeardAt.Load() > int64(g.host.config.electionTicks()/2) {
			g.host.askIfAlive(id, now)
		}
	}
}

// bind binds every member to the directory with which its host has come. all is false if one has not come.
func (g *Group) bind() (b entry.Binding, all bool) {
	for _, id := range g.memberIDs() {
		i, known := g.host.incarnation(), true
		if id != g.self {
			i, known = g.host.trust.admission.Incarnation(id)
		}
		if !known {
			return nil, false
		}
		b = append(b, entry.BoundMember{ID: id, Incarnation: i})
	}
	return b, true
}

// missing returns the members that an entry found binds and that have not acknowledged, in this leadership,
// that they hold it durably.
func (g *Group) missing(found *founding.Entry) (ids []uint64) {
	progress := g.core.node.Status().Progress
	return found.Missing(func(id, index uint64) bool {
		pr, ok := progress[id]
		return ok && !pr.WithoutAuthority && pr.Match >= index
	})
}

// proposeFounding proposes an entry. If the core drops it, for example during a transfer of the leadership,
// the next turn tries again.
func (g *Group) proposeFounding(data []byte) (proposed bool) {
	err := g.core.node.Step(raftpb.Message{Type: raftpb.MsgProp, From: g.self, Entries: []raftpb.Entry{{Type: raftpb.EntryHost, Data: data}}})
	if err != nil {
		if !errors.Is(err, raft.ErrProposalDropped) {
			g.noteRefusal(err)
		}
		return false
	}
	st := g.core.node.BasicStatus()
	g.noteEntries([]raftpb.Entry{{Type: raftpb.EntryHost, Term: st.Term, Index: st.LastIndex, Data: data}})
	return true
}

// holdCommands decides whether commands stay in the inbox.
func (g *Group) holdCommands() (released bool) {
	hold := g.core.node.BasicStatus().RaftState == raft.StateLeader && g.members.founding.Holds(g.core.at.Ticks, int64(g.host.config.electionTicks()))
	return g.inbox.hold(hold) && !hold
}

// foundingDue returns the tick at which commands are no longer held.
func (g *Group) foundingDue() int64 {
	return g.members.founding.Due(g.core.at.Ticks, int64(g.host.config.electionTicks()))
}

// publishFounding makes the founding visible to Group.Founding.
func (g *Group) publishFounding() { g.members.founding.Publish(g.unmet, g.missing) }

// withPromises makes an entry found say how long the members' promises last: as long as this member's.
func (g *Group) withPromises(found []byte) []byte {
	if !g.config.Leases {
		return found
	}
	return entry.WithPromise(found, g.host.config.promiseTime())
}

// noteEntries notes the founding entries among those that are appended to this host's log.
func (g *Group) noteEntries(entries []raftpb.Entry) {
	g.noteMembers(entries)
	if g.members.founding.IsFounded() {
		return
	}
	for i := range entries {
		if e := &entries[i]; e.Type == raftpb.EntryHost && !entry.IsMemberEntry(e.Type, e.Data) {
			if err := g.addFounding(e.Index, e.Term, e.Data); err != nil {
				g.fail(err)
			}
		}
	}
	g.setBound()
}

// noteCommitted ends the founding when the entry is among the committed ones, which are handed to the state
// machine through this index. (On this disk they are durable, so no entry of the founding changes any more.)
func (g *Group) noteCommitted(through uint64) {
	if !g.members.founding.IsFounded() {
		g.commitFounding(through)
	}
	g.commitMembers(through)
}
