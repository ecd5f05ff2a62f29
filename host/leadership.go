package host

import (
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/leadership"
	"github.com/millrace/millrace/host/internal/sched"
)

// groupLeadership is what a group knows of who should lead it. The turn owns what is not atomic.
type groupLeadership struct {
	stalls     stalls
	slow       leadership.SlowMembers
	resume     leadership.Resume
	lateOrders lateOrders
	quietLead  quietLead
	placing    groupPlacing // its own comments say who owns what
	transfer   *Transfer    // under way, and owned by the turn; nil: none

	staysLeader atomic.Bool // it was asked to hand over, and cannot
}

// lateOrders is what a group knows of the order to campaign that came last.
type lateOrders struct {
	orderAt atomic.Int64 // tick at which it came and waits since; 0: none waits
}

// wish is what a survey wants a group to do: to hand over to one of some members, the best first.
type wish struct {
	group *Group
	to    []target
	began int64 // tick of the turn that has taken it

	marked int64  // tick at which the end of the log was noted,
	goal   uint64 // and that
}

// target is a member that should lead.
type target struct {
	id     uint64
	rank   int
	leads  uint64 // groups on its host
	here   int    // and on this one
	better bool   // it ranks above this member; otherwise it is for balance
}

// groupPlacing is a group's part in placement.
type groupPlacing struct {
	preference atomic.Pointer[Placement]        // nil: all members are equal
	recent     atomic.Pointer[leadership.Moves] // nil: none
	behind     atomic.Pointer[string]           // why the latest wish was not carried out; nil: it was

	led     sched.Place[*Group] // guarded by the lock of the placer,
	prefers bool                // as this: it is counted there

	wish *wish // under way; owned by the turn
}

// quietLead is a leader's part in pulses. It belongs to the turn.
type quietLead struct {
	pulsed     bool  // its heartbeats are left to the pulses
	pulseAfter int64 // not before this tick
	activeAt   int64 // the tick through which answers were noted
}

// Transfer is a leadership that is handed over because a caller wants it (Group.StartTransfer). It rests on
// the transfer of the core. The leader takes no commands, brings the target's log up to its own, and tells
// the target to campaign. After an election timeout the leader gives up and leads again. The group answers
// in its turns, so nothing here waits.
//
// A transfer has ended well when this host knows another leader. Until then it does not: that the order to
// campaign has left says nothing about the votes.
type Transfer struct {
	to    uint64
	group *Group

	mu   sync.Mutex
	done chan struct{} // closed with the outcome
	err  error
	is   bool

	// Owned by the turn.
	target uint64 // that was asked of the core; 0: not yet
	term   uint64 // in which it was
	at     int64  // tick
}

// recentOrNew returns the hand-overs of the group, for what is noted now. Most groups never have any.
func (p *groupPlacing) recentOrNew() *leadership.Moves {
	if m := p.recent.Load(); m != nil {
		return m
	}
	p.recent.CompareAndSwap(nil, new(leadership.Moves))
	return p.recent.Load()
}

// moves returns how many hand-overs for placement were within a time before now.
func (p *groupPlacing) moves(now, within int64) int {
	m := p.recent.Load()
	if m == nil {
		return 0
	}
	return m.Count(now, within)
}

// rests reports whether a caller has asked for a hand-over less than an hour ago.
func (p *groupPlacing) rests(now int64) bool {
	m := p.recent.Load()
	return m != nil && m.Rests(now)
}
