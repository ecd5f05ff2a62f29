package host

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// founding is how a group begins. What a member has promised is in its directory, so every member must know
// by which directory each other member makes its promises, before a promise counts. Otherwise a host whose
// directory was wiped helps to elect a second leader of a term, and what was acknowledged is lost.
//
//	members meet       each records the incarnation of every other one durably (handshakes.go). Before that, no
//	                   member votes, for itself or another
//	entry found        the leader's: the incarnation of every founding member. It is in force on a member as
//	                   soon as it is in its log, committed or not, like a configuration (thesis §4.1)
//	entry founded      proposed when found is durable on every founding member. Commands come behind it in the
//	                   log, so none is committed before founded is
//
// From then on a host that comes with another directory is refused in this group, whatever peers.json says.
//
// In force when in the log, and not when applied: a member that restarts may not know that found is
// committed. If it then believed the wiped host, the two could elect a leader that lacks acknowledged
// commands.
//
// Founding a group takes every founding member once; after that a quorum is enough. If a member does not
// come, or was wiped before founded, there is nothing to keep: the directories are emptied, and the group is
// founded again with another list (decision 0013 says why not without that member).
//
// Rejected: only the two entries, with elections as soon as a majority is up. Two directories of one host can
// then vote in one term, so two leaders can propose different entries found at one place.
type founding struct {
	// Owned by the turn.
	seen       []foundingEntry // that are in this host's log, or were; the latest last
	founded    bool            // founded is committed
	knew       bool            // founded was in the log when the group was opened
	quick      bool            // the first campaign was made
	leads      bool
	leadsSince int64         // tick
	promise    time.Duration // of each member, by the entry found in the log; 0: none
	refusedAt  int64         // tick at which a refusal was sent last
	told       []uint64

	bound   atomic.Pointer[entry.Binding]      // by the entry found in this host's log; nil: there is none
	counted atomic.Bool                        // in handshakes.Unfounded
	refuses atomic.Pointer[[]uint64]           // members that come with another directory; nil: none
	reached atomic.Pointer[diagnosis.Founding] // what Group.Founding returns
}

// foundingEntry is an entry found or founded.
type foundingEntry struct {
	index, term uint64
	bound       entry.Binding // nil: founded
	promise     time.Duration // of members of a group with leases
}

// foundingPage bounds one read of the log in search of founding entries.
const foundingPage = 64 << 10

// openFounding makes the founding list that of the log, if it has one, and that of the configuration if not.
func (g *Group) openFounding() error {
	if g.members.founding.founded {
		return nil // a snapshot has said so
	}
	if err := g.readFounding(); err != nil {
		return err
	}
	found := g.current(true)
	switch {
	case found == nil && g.members.joins:
		return nil // it learns of the list by the entry
	case found == nil:
		if len(g.writes.storage.Conf.Voters) == 0 { // or a snapshot that was restored from an archive has set it
			g.writes.storage.Conf = raftpb.ConfState{Voters: g.memberIDs()}
		}
		return g.rejectOutsider()
	case g.current(false) == nil && !g.members.joins:
		if err := g.rejectBinding(found.bound); err != nil {
			return err
		}
	}
	ids := found.bound.IDs()
	g.members.ids.Store(&ids)
	g.writes.storage.Conf = raftpb.ConfState{Voters: ids}
	if g.members.joins {
		return nil
	}
	return g.rejectDirectory(found.bound)
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
				if g.current(false) == nil {
					return fmt.Errorf("millrace: group %d has a command at index %d of its log and no founding before it; the log was written by an older program, and there is no migration: found the group again with empty directories",
						g.id, e.Index)
				}
				g.members.founding.knew = true
				return nil
			}
		}
		lo += uint64(len(page))
	}
	g.members.founding.knew = g.current(false) != nil
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
	if !slices.ContainsFunc(g.members.founding.seen, func(e foundingEntry) bool { return e.index == index && e.term == term }) {
		e := foundingEntry{index: index, term: term, bound: b}
		if b != nil {
			e.promise = entry.PromiseOf(data)
		}
		g.members.founding.seen = append(g.members.founding.seen, e)
	}
	return nil
}

// current returns the last entry found, or founded, that is in the log now.
func (g *Group) current(found bool) (last *foundingEntry) {
	for i := range g.members.founding.seen {
		e := &g.members.founding.seen[i]
		if (e.bound != nil) != found || last != nil && e.index < last.index {
			continue
		}
		if term, ok := g.entryTerm(e.index); ok && term == e.term {
			last = e
		}
	}
	return last
}

// entryTerm returns the term of an entry, also while the group is being opened.
func (g *Group) entryTerm(index uint64) (term uint64, ok bool) {
	if g.core.node != nil {
		return g.core.node.EntryTerm(index)
	}
	term, err := g.writes.storage.log.Term(index)
	return term, err == nil
}

func (g *Group) commitFounding(through uint64) {
	if e := g.current(false); e == nil || e.index > through {
		return
	}
	g.members.founding.founded = true
	g.work.wanted.Want(turn.All)
	g.foundRoster(*g.members.founding.bound.Load())
	g.keepFound()
	g.publishFounding()
	g.members.founding.seen = nil
	if !g.members.founding.knew {
		g.host.reports.events.emit(event.GroupFounded{Group: g.id})
		g.host.env.logger.Info("group founded", "group", g.id, "host", g.self, "members", g.memberIDs())
	}
}

// setBound puts the binding of this host's log in force.
func (g *Group) setBound() {
	var now *entry.Binding
	g.members.founding.promise = 0
	if e := g.current(true); e != nil {
		now, g.members.founding.promise = &e.bound, e.promise
	}
	if was := g.members.founding.bound.Load(); was == now || was != nil && now != nil && slices.Equal(*was, *now) {
		return
	}
	if now != nil {
		b := slices.Clone(*now)
		now = &b
	}
	g.members.founding.bound.Store(now)
	if g.members.joins {
		g.adoptFounders()
	} else {
		g.countUnfounded(now == nil)
	}
	g.setRefuses()
}

// countUnfounded counts the group among those for which hosts must meet, or not. For the first one the host
// greets the others at once, so that the last host that comes does not cost a heartbeat interval.
func (g *Group) countUnfounded(is bool) {
	switch {
	case is && g.members.founding.counted.CompareAndSwap(false, true):
		if g.host.network.handshakes.Unfounded.Add(1) == 1 {
			g.host.greetUnmet()
		}
	case !is && g.members.founding.counted.CompareAndSwap(true, false):
		g.host.network.handshakes.Unfounded.Add(-1)
	}
}

// takesCommands reports whether a leader takes commands: founded is in its log, so every command is behind
// it.
func (g *Group) takesCommands() bool {
	return g.members.founding.founded || g.current(false) != nil
}

// advanceFounding takes the next step of the founding, if this member leads or is the first to campaign.
func (g *Group) advanceFounding() (again bool) {
	if g.members.founding.founded {
		return false
	}
	g.setBound()
	if g.members.joins {
		return true
	}
	st := g.core.node.BasicStatus()
	if leads := st.RaftState == raft.StateLeader; leads != g.members.founding.leads {
		g.members.founding.leads, g.members.founding.leadsSince = leads, g.core.at.ticks
	}
	if !g.members.founding.leads {
		g.campaignFirst(st)
		if st.Lead == raft.None {
			g.askFounders()
		}
		return true
	}
	if g.current(false) != nil {
		return true
	}
	found := g.current(true)
	if found == nil {
		b, all := g.bind()
		if !all || !g.proposeFounding(g.withPromises(entry.EncodeFound(b))) {
			return true
		}
		if found = g.current(true); len(b) > 1 {
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
	if g.members.founding.quick || st.Lead != raft.None || g.self != g.memberIDs()[0] {
		return
	}
	if !g.host.network.handshakes.AreReady(g.memberIDs(), g.self) || len(g.unmet()) > 0 {
		return
	}
	g.members.founding.quick = true
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
func (g *Group) missing(found *foundingEntry) (ids []uint64) {
	progress := g.core.node.Status().Progress
	for _, id := range found.bound.IDs() {
		if pr, ok := progress[id]; !ok || pr.WithoutAuthority || pr.Match < found.index {
			ids = append(ids, id)
		}
	}
	return ids
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

// holdCommands decides whether commands stay in the inbox. A new leader lets them wait for the founding,
// which takes two round trips, and refuses them when an election timeout has passed.
func (g *Group) holdCommands() (released bool) {
	hold := !g.members.founding.founded && g.members.founding.leads && g.core.node.BasicStatus().RaftState == raft.StateLeader && !g.takesCommands() && g.core.at.ticks < g.holdsUntil()
	return g.inbox.hold(hold) && !hold
}

func (g *Group) holdsUntil() int64 {
	return g.members.founding.leadsSince + int64(g.host.config.electionTicks())
}

// foundingDue returns the tick at which commands are no longer held.
func (g *Group) foundingDue() int64 {
	if g.members.founding.founded || !g.members.founding.leads || g.core.at.ticks >= g.holdsUntil() {
		return never
	}
	return g.holdsUntil()
}

// publishFounding makes the founding visible to Group.Founding.
func (g *Group) publishFounding() {
	var now diagnosis.Founding
	if g.members.founding.founded {
		now.Found, now.Founded = true, true
	} else {
		found := g.current(true)
		now.Found, now.Founded, now.Unmet = found != nil, g.current(false) != nil, g.unmet()
		if g.members.founding.leads && found != nil && !now.Founded {
			now.Missing = g.missing(found)
		}
	}
	if was := g.members.founding.reached.Load(); was == nil || was.Found != now.Found || was.Founded != now.Founded || !slices.Equal(was.Unmet, now.Unmet) || !slices.Equal(was.Missing, now.Missing) {
		g.members.founding.reached.Store(&now)
	}
}
