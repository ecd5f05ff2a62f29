package host

import "github.com/millrace/millrace/host/internal/turn"

// The duties of a group, in the order in which a turn calls them. What decides about members comes before
// what uses them; what may hand the leadership over comes before what needs a leader.
const (
	dutyInstall = iota
	dutyAuthority
	dutyFetched
	dutyApplied
	dutyStalls
	dutySlowMembers
	dutyViews
	dutyWaitingLine
	dutyShutdown
	dutyTransfer
	dutyPlacement
	dutyFounding
	dutyObjects
	dutyPlan
	dutyResume
	dutyReads
	dutyRefused
	dutyFoundingState
	dutySkips
	dutyHalted
	dutySnapshots
	dutyPulses
)

// want makes the group's next turn call a duty, for which the caller has left an input. Any goroutine may
// call it, and wakes the group after it.
func (g *Group) want(duty int) { g.work.wanted.Want(turn.Of(duty)) }
