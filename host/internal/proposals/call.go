package proposals

import (
	"errors"
	"time"

	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
)

// Call is a command on its way to the state machine, from the door to its outcome. The user's fields are
// those of host.Call.
type Call struct {
	Data    []byte
	Owner   outcome.Caller
	Here    bool
	Session *session.Mark

	w        Waiter
	queue    *Queue
	queued   time.Duration // by the host's clock
	appended time.Duration

	replicated time.Duration

	// appliedIn is the term of its entry if the state machine got it, and it has no session. Under Queue.mu.
	appliedIn uint64

	// Written by the turn. The apply lane removes the call (Queue.FindCallers).
	place   sched.Place[*Call] // in a list of routedCalls
	index   uint64             // of its latest entry in this host's log; 0: none
	pos     uint32             // and its place there
	number  uint64             // in the group's own session; 0: none
	live    int32              // tries that left this host or are in its log, and were not surely refused
	tries   int32
	frame   uint64 // the forward frame of the latest try; 0: it cannot be refused any more
	retryAt int64  // the tick of the next try
	shared  bool   // Data is part of an entry in this host's log, and must not be changed
	alone   bool   // travels in a frame of its own
}

// Begin prepares a call for its way through a queue, at the door. Its fields are set before.
func (c *Call) Begin(q *Queue) Proposal {
	c.w.phase.Store(waiterQueued)
	c.w.call, c.queue, c.place.Owner = c, q, c
	c.queued, c.appended, c.replicated = 0, 0, 0
	c.index, c.appliedIn, c.number, c.live, c.tries, c.frame, c.retryAt, c.alone, c.shared = 0, 0, 0, 0, 0, 0, 0, false, false
	return Proposal{Waiter: &c.w}
}

// Forget makes a call forget its command, whose outcome is complete. It returns false if queues may still
// have the call: it went to another host, or has a place in a session.
func (c *Call) Forget() bool {
	if c.Session != nil || c.number != 0 || c.tries != 0 || c.place.In() != nil {
		return false
	}
	c.Data, c.Owner = nil, nil
	return true
}

// BytesOf is what a call with some data counts against the bounds of memory.
func BytesOf(data []byte) int64 { return int64(len(data)) + OverheadBytes }

func (c *Call) bytes() int64 { return BytesOf(c.Data) }

// Withdrawal is what is known of a call that its client gives up.
type Withdrawal int

const (
	NotProposed Withdrawal = iota // it is certainly not committed, and never will be
	GivenUp                       // it may be committed, now or later
	Withdrawn                     // the same; it was given up before
	Answered                      // its owner has been told, or is being told
)

// Withdraw gives a call up. After NotProposed and GivenUp a turn must follow some time, which forgets it.
func (c *Call) Withdraw() Withdrawal {
	for {
		switch {
		case c.w.Withdraw():
			c.queue.calls.withdrawn.Add(1)
			return NotProposed
		case c.w.giveUp():
			c.queue.calls.withdrawn.Add(1)
			return GivenUp
		case c.w.Answered():
			return Answered
		}
		if phase := c.w.phase.Load(); phase == waiterWithdrawn || phase == waiterGivenUp {
			return Withdrawn
		}
	}
}

// countWithdrawn counts a call that its client has withdrawn before another try, when the group forgets it.
func (c *Call) countWithdrawn() {
	if c.w.phase.Load() == waiterWithdrawn {
		c.queue.Refusals.Withdrawn.Add(1)
	}
}

// fail tells the owner that there will be no result.
func (c *Call) fail(err error) {
	if c.w.finish() {
		c.queue.Refusals.Add(err, 1)
		c.queue.Callers.Failed(c.Owner, err)
	}
}

// appliedReceipt is the receipt of a call whose outcome is known when it is applied.
func (c *Call) appliedReceipt(e *statemachine.Command, now time.Duration) outcome.Receipt {
	return outcome.Receipt{Index: e.Index, Pos: e.Pos, Term: e.Term, Queued: c.queued, Appended: c.appended, Replicated: c.replicated, Committed: now, Applied: now}
}

// endsTry reports whether an error says that a try surely led to nothing, and that another one may succeed.
func endsTry(err error) bool {
	return errors.Is(err, outcome.ErrDropped) || errors.Is(err, outcome.ErrNotLeader) || errors.Is(err, outcome.ErrOverloaded) || errors.Is(err, outcome.ErrNotFounded)
}
