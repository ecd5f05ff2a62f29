package host

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// noteMembers notes the entries among those that are appended to this host's log, and forgets those that they
// replace.
func (g *Group) noteMembers(entries []raftpb.Entry) {
	replaced, noted := g.members.noted.Append(entries)
	if replaced {
		g.want(dutyPlan) // it waits for those that were noted
	}
	if noted {
		g.want(dutySkips)
	}
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
	g.members.noted.Keep(func(e *raftpb.Entry) bool {
		term, ok := g.core.node.EntryTerm(e.Index)
		return ok && term == e.Term
	})
}

// commitMembers puts in force what was noted through an index. It is part of a turn, and comes before the
// entries are handed to the state machine.
func (g *Group) commitMembers(through uint64) {
	now := g.members.noted.Through(through)
	for i := range now {
		g.commitMember(&now[i])
	}
	if len(now) > 0 {
		g.members.noted.DropThrough(through)
		g.want(dutyPlan)
	}
}

func (g *Group) commitMember(e *raftpb.Entry) {
	if entry.IsSkip(e.Type, e.Data) {
		g.orderSkip(e)
		return
	}
	now := g.roster()
	if now == nil {
		g.noteIgnored(e, fmt.Errorf("the group is not founded"))
		return
	}
	if e.Index <= now.Version {
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
func (g *Group) nextRoster(now *membership.Roster, e *raftpb.Entry) (*membership.Roster, error) {
	next, changes, err := entry.RosterAfter(now, e)
	if err != nil {
		return next, err
	}
	g.host.learnMembers(next) // before the core, which may send to a new member at once
	for i, cc := range changes {
		if have := g.core.node.ApplyConfChange(cc); i == len(changes)-1 && have.Equivalent(next.Conf) != nil {
			g.fail(fmt.Errorf("millrace: after entry %d the core of group %d has configuration %s, and its host %s; this is a bug",
				e.Index, g.id, raft.DescribeConfState(*have), raft.DescribeConfState(next.Conf)))
		}
	}
	return next, nil
}

func (g *Group) noteIgnored(e *raftpb.Entry, why error) {
	g.host.env.logger.Warn("an entry changes no members, as on every member", "group", g.id, "host", g.self, "index", e.Index, "cause", why)
}

// setRoster puts a roster in force. From then on every part of the host may ask for its members, so they
// are known before: also those of a group that is being opened, which only its snapshot names. What other
// parts do then is in wiring.go.
func (g *Group) setRoster(next *membership.Roster) {
	g.host.learnMembers(next)
	was := g.members.rosters.Set(next, g.machine.apply.Applied())
	g.members.time.Note(next.Time, g.now())
	g.rosterChanged(was, next)
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

// roster returns the roster in force, or nil if the group is not founded.
func (g *Group) roster() *membership.Roster { return g.members.rosters.Now() }

// memberIDs returns the ids of the members, voters and learners; before the group is founded, its founding
// list. Any goroutine may call it.
func (g *Group) memberIDs() []uint64 { return g.members.rosters.IDs() }

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

// leavesOutMember reports whether the group does not hear a member: it comes with another directory.
func (g *Group) leavesOutMember(id uint64) bool {
	refused := g.members.refuses.Load()
	return refused != nil && slices.Contains(*refused, id)
}

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

// counts is what this member goes by when it decides who counts. Any goroutine may call it.
func (g *Group) counts() members.View {
	m := &g.members
	return members.View{Self: g.self, Bound: m.founding.Bound(), Roster: m.rosters.Now(), Hint: m.rosters.Hint()}
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
		g.fail(&members.RemovedError{Group: g.id, Self: g.self, Index: now.Version})
	}
}

// removedBy is told by another host that this one's directory was removed. It may never have applied that it
// was added.
func (g *Group) removedBy(member uint64, r members.Removed) {
	now := g.roster()
	// A founder that was closed early may not know that the group is founded, but its log binds it.
	mayBe := now != nil && r.Version > now.Version || now == nil && (g.members.joins || g.members.founding.Bound() != nil)
	if r.Incarnation != g.host.incarnation() || !mayBe {
		return // it is about another directory, or late
	}
	if !g.believesRemoval(member) {
		return
	}
	g.fail(fmt.Errorf("%w; host %d says so", &members.RemovedError{Group: g.id, Self: g.self, Index: r.Version}, member))
}

// adoptFounders makes the founding list of the log that of a new member, and its configuration the one that
// the log begins with.
func (g *Group) adoptFounders() {
	b := g.members.founding.Bound()
	if b == nil || g.roster() != nil || len(g.writes.storage.Conf.Voters) > 0 {
		return
	}
	ids := b.IDs()
	g.host.learnHosts(ids)
	g.members.rosters.SetIDs(ids)
	g.writes.storage.Conf = raftpb.ConfState{Voters: ids}
	for _, id := range ids {
		g.core.node.ApplyConfChange(raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: id})
	}
}

func (m *groupMembers) init(g *Group) {
	m.founding.Init((*foundingLog)(g))
	m.executions.Init((*planMember)(g), g.id, g.self, &g.host.changes.executing)
}
