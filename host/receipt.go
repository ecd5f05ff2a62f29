package host

import "time"

// Receipt is the position of a committed command in the log and, for a Call, when it passed each step. The
// times are read once for each batch of commands, not for each command. So they cost little and are as
// exact as a turn of the group is short.
type Receipt struct {
	Index, Term uint64

	// Times on the monotonic clock of this host (Group.Now), which begins anywhere: only differences count. 0
	// means not known. Group.Propose and Submit know none.
	Queued   time.Duration // Group.Call took the first command of its batch
	Appended time.Duration // a turn put it into the log of this host, which led
	// Replicated is when this host, which led, first passed an append with the command to the transport for
	// another member. Whether it arrived is not known. A group of one member has none.
	Replicated time.Duration
	Committed  time.Duration // this host learned that a quorum holds it durably
	Applied    time.Duration // the state machine of this host gets it; known with the result, not before
	// By is the member whose acknowledgement completed the quorum, as this host saw it as the leader: its own
	// id if its own disk came last. 0 if this host did not lead then.
	By uint64
}

// Now returns the time on the monotonic clock of the host, for comparison with a Receipt.
func (g *Group) Now() time.Duration { return g.now() }

// appliedReceipt is the receipt of a call whose outcome is known when it is applied.
func (c *Call) appliedReceipt(e *Command, now time.Duration) Receipt {
	return Receipt{Index: e.Index, Term: e.Term, Queued: c.queued, Appended: c.appended, Replicated: c.replicated, Committed: now, Applied: now}
}
