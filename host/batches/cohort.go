package batches

import "time"

const (
	// maxHeld and maxHeldBytes are what a batch waits with, at most: more overlaps with the batch before,
	// since the cost of the round is spread over enough commands.
	maxHeld      = 256
	maxHeldBytes = 256 << 10
	// maxWait bounds the wait for clients that were answered. Half a round bounds it, too, or a whole one while
	// they come back.
	maxWait = time.Millisecond
	// strays is which part of the clients may be missing after a wait that was not for nothing: 1/16.
	strays = 16
	// maxMisses bounds the pause after waits for nothing: 1 << maxMisses batches do not wait.
	maxMisses = 7
)

// Cohort begins no batch while one is under way that has commands of clients of this host. Then it waits for
// as many of these clients as were answered and as wait already, for at most half a round. The wait lasts
// longer, by quarters of a round, and a whole round at most, while in each part as many have come as are
// still missing. Clients that get a result come back later than the commit. They would fall into two groups,
// which alternate, and pay for a round each.
//
// A wait that ends before nearly all have come, 15 of 16, was for nothing. After it some batches do not wait:
// 2, and twice as many after each further one, 128 at most.
//
// A command that is held waits for a commit that it could not overtake, and then for at most a millisecond.
type Cohort struct {
	target int           // clients that are expected; 0: none
	had    int           // commands that waited when this part of the wait began
	ends   time.Duration // of this part,
	last   time.Duration // and the latest end of the wait
	part   time.Duration // how long the next part is
	misses int           // waits for nothing, in a row
	pause  int           // batches that do not wait
}

// Next decides.
func (c *Cohort) Next(s State) Verdict {
	if s.isLong() {
		c.target = 0
		return Verdict{Begins: s.Waiting > 0, Wake: 1}
	}
	if s.Back > 0 {
		c.expect(s)
	}
	switch {
	case s.Waiting > 0 && (s.Full || s.Waiting >= maxHeld || s.Bytes >= maxHeldBytes):
		c.begin(s)
		return Verdict{Begins: true, Wake: maxHeld, WakeBytes: maxHeldBytes}
	case s.Open > 0:
		return Verdict{Wake: maxHeld, WakeBytes: maxHeldBytes}
	case s.Waiting < c.target && (s.Now < c.ends || c.extends(s)):
		return Verdict{Wake: c.target, WakeBytes: maxHeldBytes, Again: c.ends}
	}
	if s.Waiting == 0 && c.target == 0 {
		return Verdict{Wake: 1} // nothing begins
	}
	if c.begin(s); s.Waiting == 0 {
		return Verdict{Wake: 1}
	}
	return Verdict{Begins: true, Wake: maxHeld, WakeBytes: maxHeldBytes}
}

// expect notes that clients of this host were answered. They may come back.
func (c *Cohort) expect(s State) {
	c.target = 0
	if n := s.Waiting + s.Back; c.pause == 0 && n > 2 {
		c.target, c.had, c.part = min(n, maxHeld), s.Waiting, max(s.Round/4, 1)
		c.ends, c.last = s.Now+min(maxWait, s.Round/2), s.Now+min(maxWait, s.Round)
	}
}

// extends begins the next part of a wait if at least as many clients came in the last one as are missing. A
// wait ends at last.
func (c *Cohort) extends(s State) bool {
	if s.Waiting-c.had < c.target-s.Waiting || s.Now >= c.last {
		return false
	}
	c.had, c.ends = s.Waiting, min(s.Now+c.part, c.last)
	return true
}

// Chosen implements Rule.
func (c *Cohort) Chosen() Kind { return Cohorts }

// begin ends a wait, or a pause by one batch.
func (c *Cohort) begin(s State) {
	switch {
	case c.target == 0:
		c.pause = max(c.pause-1, 0)
	case s.Waiting >= c.target-c.target/strays:
		c.misses = 0
	default:
		c.misses = min(c.misses+1, maxMisses)
		c.pause = 1 << c.misses
	}
	c.target = 0
}
