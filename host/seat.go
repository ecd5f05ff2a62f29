package host

// Who wakes a group. What its shard asks it (host/internal/sched) is in shards.go, and what it answers
// while it sleeps in quiescent.go.

// wake makes the group run a turn that begins after this call.
func (g *Group) wake() { g.seat.Wake() }

// wakeUrgently is wake, before other groups.
func (g *Group) wakeUrgently() { g.seat.WakeUrgently() }

// wakeLazily makes the group run a turn before long: with its next wake, or at the next tick. It wakes
// nothing.
func (g *Group) wakeLazily() { g.seat.WakeLazily() }
