package host

import (
	"fmt"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
)

// This file says which part hears of what: calls between parts go down, and what must be heard beside or
// above is a line here.

// memberReplaced tells the other parts of the group that a member comes with another directory. It is part of
// a turn.
func (g *Group) memberReplaced(id uint64) {
	g.proposals.frames.Forget(id)
	g.machine.objects.Forget(id)
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

// rosterChanged tells the other parts of the group and of its host that a roster is in force, in this order.
// A group that is being opened tells only the first of them.
func (g *Group) rosterChanged(was, now *membership.Roster) {
	g.writes.storage.Conf = now.Conf         // what a core that begins reads from the log
	g.host.trust.keys.Announcing.Store(true) // keys.go: members may not know this host's key
	if g.core.node == nil {
		return
	}
	g.members.Rosters.DropHint(now) // a hint that is not later is of no use
	g.observeJoined()               // applicants.go: this host may be a member now
	g.members.SetExcluded()         // members that come with another directory
	g.host.reports.events.Emit(event.MembersChanged{Group: g.id, Version: now.Version, Conf: now.Conf})
	g.host.env.logger.Info("members changed", append([]any{"group", g.id, "host", g.self, "index", now.Version}, confWords(now.Conf)...)...)
	g.members.plan.Executions.Poll() // execute.go: a plan may have ended
	g.members.changed.notify()       // who waits for a roster
	g.stopIfRemoved(was, now)        // this member may be none
}
