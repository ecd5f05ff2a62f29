package host

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// members is who the members of a group are, as this one has applied it. The entry found makes the first
// roster, when founded is committed; then each entry that changes the configuration, or begins or cancels a
// plan, makes another. It is in force on this member when the entry is handed out to be applied, in the core
// and here at once. (An entry that changes the configuration is handed out only when it is durable on this
// host's disk.)
//
// The apply lane may be behind: a snapshot that it captures has the roster of its own index. So the rosters
// since the last entry that the machine has are kept.
type members struct {
	// Owned by the turn.
	noted []notedEntry // of this host's log, that are not in force; by index

	mu      sync.Mutex
	rosters []*membership.Roster // the last one is in force; those before are for snapshots

	roster  atomic.Pointer[membership.Roster] // in force; nil: the group is not founded
	ids     atomic.Pointer[[]uint64]          // of its members; before, the founding list
	joins   bool                              // this member was not, or not with this directory, among the founders
	changed signal                            // the roster
	time    apply.LogTime                     // of rosters: those are in force before the commands between them are applied

	joinRefused atomic.Pointer[string] // why this host is not made a member; nil: it is one, or nothing was said

	hint     atomic.Pointer[membership.Roster] // a later one, of another member (rosterquery.go)
	hinted   atomic.Pointer[[]uint64]          // members that come with the directory of that one
	leaderAt atomic.Int64                      // tick at which the leader was heard last, without pulses
	removal  removalNotice
}

// notedEntry is an entry that will change the roster.
type notedEntry struct {
	index, term uint64
	typ         raftpb.EntryType
	data        []byte
}

// noteMembers notes the entries among those that are appended to this host's log, and forgets those that they
// replace.
func (g *Group) noteMembers(entries []raftpb.Entry) {
	if len(entries) == 0 {
		return
	}
	m := &g.members
	if n := len(m.noted); n > 0 && m.noted[n-1].index >= entries[0].Index {
		m.dropFrom(entries[0].Index)
		g.want(dutyPlan) // it waits for those that were noted
	}
	for i := range entries {
		if e := &entries[i]; e.Type != raftpb.EntryNormal && entry.IsMemberEntry(e.Type, e.Data) {
			m.noted = append(m.noted, notedEntry{e.Index, e.Term, e.Type, e.Data})
			g.want(dutySkips)
		}
	}
}

// dropFrom forgets what was noted at and above an index.
func (m *members) dropFrom(index uint64) {
	m.noted = slices.DeleteFunc(m.noted, func(e notedEntry) bool { return e.index >= index })
}

// readMembers notes what this host's log has behind an index when the group is opened.
func (g *Group) readMembers(after uint64) error {
	log := g.writes.storage.log
	for _, i := range log.Typed(max(after+1, log.FirstIndex()), log.LastIndex()+1) {
		entries, err := log.Entries(i, i+1, 1)
		if err != nil {
			return fmt.Errorf("millrace: read entry %d of group %d, which may change its members: %w", i, g.id, err)
		}
		g.noteMembers(entries)
	}
	return nil
}

// forgetMembers forgets what was noted and is not in the log any more, when the core was started again from
// the log.
func (g *Group) forgetMembers() {
	g.members.noted = slices.DeleteFunc(g.members.noted, func(e notedEntry) bool {
		term, ok := g.core.node.EntryTerm(e.index)
		return !ok || term != e.term
	})
}

// commitMembers puts in force what was noted through an index. It is part of a turn, and comes before the
// entries are handed to the state machine.
func (g *Group) commitMembers(through uint64) {
	m := &g.members
	n := 0
	for n < len(m.noted) && m.noted[n].index <= through {
		g.commitMember(&m.noted[n])
		n++
	}
	if n > 0 {
		m.noted = slices.Delete(m.noted, 0, n)
		g.want(dutyPlan)
	}
}

func (g *Group) commitMember(e *notedEntry) {
	if entry.IsSkip(e.typ, e.data) {
		g.orderSkip(e)
		return
	}
	now := g.roster()
	if now == nil {
		g.noteIgnored(e, fmt.Errorf("the group is not founded"))
		return
	}
	if e.index <= now.Version {
		return // a snapshot has it
	}
	next, err := g.nextRoster(now, e)
	if err != nil {
		g.noteIgnored(e, err)
		return
	}
	g.setRoster(next)
}

// nextRoster returns the roster after an entry, and puts a change of the configuration in force in the core.
// An entry that changes nothing does so on every member, and the core does not learn of it.
func (g *Group) nextRoster(now *membership.Roster, e *notedEntry) (*membership.Roster, error) {
	next, changes, err := entry.RosterAfter(now, &raftpb.Entry{Index: e.index, Term: e.term, Type: e.typ, Data: e.data})
	if err != nil {
		return next, err
	}
	g.host.learnMembers(next) // before the core, which may send to a new member at once
	for i, cc := range changes {
		if have := g.core.node.ApplyConfChange(cc); i == len(changes)-1 && have.Equivalent(next.Conf) != nil {
			g.fail(fmt.Errorf("millrace: after entry %d the core of group %d has configuration %s, and its host %s; this is a bug",
				e.index, g.id, raft.DescribeConfState(*have), raft.DescribeConfState(next.Conf)))
		}
	}
	return next, nil
}

func (g *Group) noteIgnored(e *notedEntry, why error) {
	g.host.env.logger.Warn("an entry changes no members, as on every member", "group", g.id, "host", g.self, "index", e.index, "cause", why)
}

// setRoster puts a roster in force. From then on every part of the host may ask for its members, so they
// are known before: also those of a group that is being opened, which only its snapshot names. What other
// parts do then is in wiring.go.
func (g *Group) setRoster(next *membership.Roster) {
	g.host.learnMembers(next)
	m := &g.members
	m.mu.Lock()
	was := m.roster.Load()
	if m.rosters = append(m.rosters, next); was == nil || next.Version <= was.Version {
		m.rosters = []*membership.Roster{next}
	}
	m.trim(g.machine.apply.applied.Load())
	m.mu.Unlock()
	m.roster.Store(next)
	ids := next.IDs()
	m.ids.Store(&ids)
	m.time.Note(next.Time, g.now())
	g.rosterChanged(was, next)
}

// dropHint forgets a hint that is not later than a roster.
func (m *members) dropHint(now *membership.Roster) {
	if h := m.hint.Load(); h != nil && h.Version <= now.Version {
		m.hint.Store(nil)
	}
}

// confWords returns the members of a configuration for a line of the log.
func confWords(c raftpb.ConfState) (args []any) {
	for _, part := range []struct {
		name string
		ids  []uint64
	}{{"voters", c.Voters}, {"voters_before", c.VotersOutgoing}, {"learners", c.Learners}, {"learners_next", c.LearnersNext}} {
		if len(part.ids) > 0 {
			args = append(args, part.name, fmt.Sprint(part.ids))
		}
	}
	return args
}

// trim drops the rosters before the one that is in force after an entry.
func (m *members) trim(applied uint64) {
	for len(m.rosters) > 1 && m.rosters[1].Version <= applied {
		m.rosters = slices.Delete(m.rosters, 0, 1)
	}
}

// rosterAt returns the roster after an entry that is applied.
func (m *members) rosterAt(index uint64) *membership.Roster {
	m.mu.Lock()
	defer m.mu.Unlock()
	var at *membership.Roster
	for _, r := range m.rosters {
		if r.Version <= index {
			at = r
		}
	}
	return at
}

// roster returns the roster in force, or nil if the group is not founded.
func (g *Group) roster() *membership.Roster { return g.members.roster.Load() }

// memberIDs returns the ids of the members, voters and learners; before the group is founded, its founding
// list. Any goroutine may call it.
func (g *Group) memberIDs() []uint64 {
	if ids := g.members.ids.Load(); ids != nil {
		return *ids
	}
	return nil
}

// voters returns the members that the core counts, in either half of a joint configuration.
func (g *Group) voters() []uint64 {
	if r := g.roster(); r != nil {
		return r.Voters()
	}
	return g.memberIDs()
}

func (g *Group) isMember(id uint64) bool { return slices.Contains(g.memberIDs(), id) }

// isOther reports whether a host is another member of the group.
func (g *Group) isOther(id uint64) bool { return id != g.self && g.isMember(id) }

// isMemberOrLeads reports whether a host is a member, or leads: a member that is behind may not know its
// leader as a member yet.
func (g *Group) isMemberOrLeads(id uint64) bool {
	return g.isMember(id) || id == g.life.status.Load().Leader && !g.leavesOutMember(id)
}

// foundRoster makes the first roster of a group, when founded is committed.
func (g *Group) foundRoster(b entry.Binding) {
	if g.roster() != nil {
		return
	}
	g.setRoster(b.Roster())
}

// boundTo returns the directory that the group has bound a member to, if it has: by its roster, or before
// that by the entry found in this host's log.
func (g *Group) boundTo(id uint64) (i transport.Incarnation, bound bool) {
	if r := g.roster(); r != nil {
		m, ok := r.Member(id)
		return m.Incarnation, ok
	}
	if b := g.members.founding.bound.Load(); b != nil {
		return b.Of(id)
	}
	return i, false
}

// isQuorum reports whether the members for which is returns true are a quorum. Any goroutine may call it.
func (g *Group) isQuorum(is func(id uint64) bool) bool {
	if r := g.roster(); r != nil {
		return r.Spare(is) >= 0
	}
	n, voters := 0, g.voters()
	for _, id := range voters {
		if is(id) {
			n++
		}
	}
	return n > len(voters)/2
}

// stopIfRemoved stops a member that was removed from its group. One that takes the place of a lost directory
// reads in its log how that was removed, and goes on.
func (g *Group) stopIfRemoved(was, now *membership.Roster) {
	if _, is := now.Member(g.self); is || was == nil {
		return
	}
	if before, is := was.Member(g.self); is && before.Incarnation == g.host.incarnation() {
		g.fail(&removedError{group: g.id, self: g.self, index: now.Version})
	}
}

// removedBy is told by another host that this one's directory was removed. It may never have applied that it
// was added.
func (g *Group) removedBy(member uint64, r removal) {
	now := g.roster()
	// A founder that was closed early may not know that the group is founded, but its log binds it.
	mayBe := now != nil && r.version > now.Version || now == nil && (g.members.joins || g.members.founding.bound.Load() != nil)
	if r.incarnation != g.host.incarnation() || !mayBe {
		return // it is about another directory, or late
	}
	if !g.believesRemoval(member) {
		return
	}
	g.fail(fmt.Errorf("%w; host %d says so", &removedError{group: g.id, self: g.self, index: r.version}, member))
}

// adoptFounders makes the founding list of the log that of a new member, and its configuration the one that
// the log begins with.
func (g *Group) adoptFounders() {
	b := g.members.founding.bound.Load()
	if b == nil || g.roster() != nil || len(g.writes.storage.Conf.Voters) > 0 {
		return
	}
	ids := b.IDs()
	g.host.learnHosts(ids)
	g.members.ids.Store(&ids)
	g.writes.storage.Conf = raftpb.ConfState{Voters: ids}
	for _, id := range ids {
		g.core.node.ApplyConfChange(raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: id})
	}
}

// removedError is why a member that was removed has stopped.
type removedError struct{ group, self, index uint64 }

func (e *removedError) Error() string {
	return fmt.Sprintf("millrace: host %d was removed from group %d by entry %d of its log; remove its data with Host.RemoveGroup, or its directory if it has no other groups; the host can join again with an empty directory and another id", e.self, e.group, e.index)
}

// Is makes errors.Is(err, ErrMemberRemoved) hold.
func (e *removedError) Is(target error) bool { return target == outcome.ErrMemberRemoved }

// groupMembers says who counts in a group, how that began, and how it is to change.
type groupMembers struct {
	members
	founding   founding
	plan       planned
	executions plans.Executions

	refusesSince     atomic.Int64 // refuses is not empty since then
	withoutAuthority atomic.Bool  // changed by the turn only
	lostAt           int64        // when it was opened without
}

func (m *groupMembers) init(g *Group) {
	m.founding.reached.Store(new(diagnosis.Founding))
	m.executions.Init((*planMember)(g), g.id, g.self, &g.host.changes.executing)
}
