package bench

import (
	"context"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// BareCohortName is bare with a leader that lets its clients come back. With a goroutine for each client bare
// writes for one half of them while the other half is answered, and pays for each round twice. This leader
// begins no batch while one is under way. Then it waits a moment for the clients that it has just answered.
//
// Without this row a library that follows the rule could be faster than what is called the limit. The wait
// of the library may last a whole round while clients come back. Those of bare need no result, and are back
// sooner.
const BareCohortName = "bare+cohort"

const (
	// A batch of this size does not wait: it is written beside the one under way.
	cohortCommands = 256
	cohortBytes    = 256 << 10
	// maxCohortWait bounds the wait for answered clients, beside half a round.
	maxCohortWait = time.Millisecond
	// A wait for nothing is followed by rounds without one: 2, then 4, … at most 2^maxCohortMisses.
	maxCohortMisses = 7
	// fewestClients is the smallest cohort that is waited for: one client that comes back is no batch.
	fewestClients = 3
)

// cohort is the rule of BareCohortName. bare.mu guards it.
type cohort struct {
	released uint64 // the log and the senders take what is below
	waiting  int    // records beyond it
	target   int    // so many make a batch when nothing is under way
	began    time.Time
	round    time.Duration // mean, from the release of a batch to its commit

	holding bool // the timer runs, since fewer than target wait
	timer   *time.Timer
	misses  int // waits for nothing, one after the other
	pause   int // rounds that do not wait
}

// openBareCohort is openBare for BareCohortName.
func openBareCohort(_ context.Context, s load.Setup) (load.Target, error) {
	b := newBare(s)
	b.cohort = &cohort{target: 1}
	return b.opened(s)
}

// added counts a record that is in the ring, and reports whether there is more to write now. The caller holds
// bare.mu.
func (c *cohort) added(b *bare) bool {
	c.waiting++
	large := c.waiting >= cohortCommands || b.ring.tail-c.released >= cohortBytes
	if !large && (b.commit < c.released || c.waiting < c.target) {
		return false
	}
	if c.holding {
		c.misses = 0
	}
	c.release(b)
	return true
}

// release begins a batch of all that waits. The caller holds bare.mu.
func (c *cohort) release(b *bare) {
	if c.holding {
		c.holding = false
		c.timer.Stop()
	}
	if b.commit == c.released {
		c.began = time.Now()
	}
	c.released, c.waiting = b.ring.tail, 0
}

// committed takes note that clients were answered, and reports whether there is more to write now. The caller
// holds bare.mu.
func (c *cohort) committed(b *bare, answered int) bool {
	if b.commit < c.released {
		return false
	}
	took := time.Since(c.began)
	c.round += (took - c.round) / 8
	c.target = 1
	switch {
	case c.pause > 0:
		c.pause--
	case c.waiting+answered >= fewestClients:
		c.target = c.waiting + answered
	}
	switch {
	case c.waiting >= c.target:
		c.release(b)
		return true
	case c.target > 1:
		c.hold(b, min(maxCohortWait, c.round/2))
	}
	return false
}

// hold waits for the clients that were answered. The caller holds bare.mu.
func (c *cohort) hold(b *bare, wait time.Duration) {
	c.holding = true
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, func() { b.waited() })
	} else {
		c.timer.Reset(wait)
	}
}

// waited ends a wait in which not all have come back. A call that is late finds another wait or none: it
// makes that one shorter.
func (b *bare) waited() {
	b.mu.Lock()
	c := b.cohort
	more := false
	if c.holding && b.closed == nil {
		c.holding = false
		c.misses = min(c.misses+1, maxCohortMisses)
		c.pause = 1 << c.misses
		c.target = 1
		if more = c.waiting > 0; more {
			c.release(b)
		}
	}
	b.mu.Unlock()
	if more {
		b.wakeAll()
	}
}
