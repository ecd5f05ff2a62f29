package host

import (
	"sync/atomic"

	"github.com/millrace/millrace/raft/raftpb"
)

// Who wakes a group. What its shard asks it (host/internal/sched) is in shards.go, and what it answers
// while it sleeps in quiescent.go.

// wake makes the group run a turn that begins after this call.
func (g *Group) wake() { g.seat.Wake() }

// wakeUrgently is wake, before other groups.
func (g *Group) wakeUrgently() { g.seat.WakeUrgently() }

// wakeLazily makes the group run a turn before long: with its next wake, or at the next tick. It wakes
// nothing.
func (g *Group) wakeLazily() { g.seat.WakeLazily() }

// give gives the next turn answers of a lane, and wakes the group lazily if it does not await them. It
// reports whether the group does: then the caller wakes it. It looks at awaits when the answers are there.
// Group.awaits looks for answers after it has changed awaits. So one of the two sees the other.
func (g *Group) give(answers []raftpb.Message, awaits *atomic.Bool) (awaited bool) {
	g.seat.Give(func() (lazily bool) {
		g.inbox.putAnswers(answers)
		awaited = awaits.Load()
		return !awaited
	})
	return awaited
}
