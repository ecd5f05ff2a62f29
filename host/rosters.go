package host

import (
	"fmt"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// recordMembers notes the entries among those that are appended to this host's log, and forgets those that
// they replace.
func (g *Group) recordMembers(entries []raftpb.Entry) {
	replaced, noted := g.members.Noted.Append(entries)
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
		g.recordMembers(entries)
	}
	return nil
}

// forgetMembers forgets what was noted and is not in the log any more, when the core was started again from
// the log.
func (g *Group) forgetMembers() {
	g.members.Noted.Keep(func(e *raftpb.Entry) bool {
		term, ok := g.core.node.EntryTerm(e.Index)
		return ok && term == e.Term
	})
}

// commitMembers puts in force what was noted through an index. It is part of a turn, and comes before the
// entries are handed to the state machine.
func (g *Group) commitMembers(through uint64) {
	now := g.members.Noted.Through(through)
	for i := range now {
		g.commitMember(&now[i])
	}
	if len(now) > 0 {
		g.members.Noted.DropThrough(through)
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
		g.reportIgnored(e, fmt.Errorf("the group is not founded"))
		return
	}
	if e.Index <= now.Version {
		return // a snapshot has it
	}
	next, err := g.nextRoster(now, e)
	if err != nil {
		g.reportIgnored(e, err)
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

func (g *Group) reportIgnored(e *raftpb.Entry, why error) {
	g.host.env.logger.Warn("an entry changes no members, as on every member", "group", g.id, "host", g.self, "index", e.Index, "cause", why)
}

// setRoster puts a roster in force. From then on every part of the host may ask for its members, so they
// are known before. That holds for a group that is being opened, too, whose members only its snapshot may
// name. What other parts do then is in wiring.go.
func (g *Group) setRoster(next *membership.Roster) {
	g.host.learnMembers(next)
	was := g.members.Rosters.Set(next, g.machine.apply.Applied())
	g.members.time.Observe(next.Time, g.now())
	g.rosterChanged(was, next)
}

// foundRoster makes the first roster of a group, when founded is committed.
func (g *Group) foundRoster(b entry.Binding) {
	if g.roster() != nil {
		return
	}
	g.setRoster(b.Roster())
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
	g.members.Rosters.SetIDs(ids)
	g.writes.storage.Conf = raftpb.ConfState{Voters: ids}
	for _, id := range ids {
		g.core.node.ApplyConfChange(raftpb.ConfChange{Type: raftpb.ConfChangeAddNode, NodeID: id})
	}
}

// orderSkip puts a committed entry that skips a command in force.
func (g *Group) orderSkip(e *raftpb.Entry) {
	at, isNews, err := g.machine.apply.Skips.Order(e)
	if err != nil {
		g.reportIgnored(e, err)
	}
	if !isNews {
		return
	}
	g.host.env.logger.Warn("a command is skipped, as on every member", "group", g.id, "host", g.self, "command", at, "by", e.Index)
	g.machine.apply.Wake() // a machine that is halted there can go on
	g.members.plan.Executions.Poll()
	g.members.changed.notify()
}
