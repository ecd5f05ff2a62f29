package host

import "time"

// gathering decides when a turn lets other goroutines run first, so that more commands come together for it (decision
// 0003). The other goroutines may be clients with commands, and then the wait pays: each turn, append and sync serves
// more of them. They may also be the rest of the user's program, busy with something else, and then each wait costs whole
// time slices of the processor. So a wait has to pay for itself. One that took longer than its commands are worth is followed
// by a rest of the same length, in which no turn waits; each further one in a row doubles the rest, up to 32 times the
// wait, and after one of several time slices it begins at eight times. In a busy process a thirtieth of the time is lost
// that way, and where the wait was long by accident (the machine is shared) the rest is short.
//
// Rejected: giving up for a number of turns. Under 20 busy goroutines a wait takes 200 ms and a turn 1 ms, so 256 turns are
// over at once (throughput 0.2 of that without waits, docs/decisions/0007).
type gathering struct {
	now        func() time.Duration
	before     int           // commands that waited when the wait began
	inVain     int           // waits in a row that were not worth their time
	pauseUntil time.Duration // no waits before this time
}

const (
	// gatherWorth is the longest wait that one more command is worth: about what a turn for it alone would cost.
	gatherWorth = 100 * time.Microsecond
	// gatherHog is a wait in which others have used up two time slices of Go's scheduler: no accident.
	gatherHog = 20 * time.Millisecond
	// maxGatherPause bounds how many times as long as a wait the rest after it is.
	maxGatherPause = 32
)

// begins reports whether the next turn shall wait, while so many commands wait for it.
func (g *gathering) begins(waiting int) bool {
	if g.pauseUntil > 0 {
		if g.now() < g.pauseUntil {
			return false
		}
		g.pauseUntil = 0
	}
	g.before = waiting
	return true
}

// ends takes what the wait has cost, and how many commands wait now.
func (g *gathering) ends(took time.Duration, waiting int) {
	if took <= gatherWorth*time.Duration(1+waiting-g.before) {
		g.inVain = 0
		return
	}
	if took >= gatherHog {
		g.inVain = max(g.inVain, 3)
	}
	g.pauseUntil = g.now() + took*time.Duration(min(1<<g.inVain, maxGatherPause))
	g.inVain = min(g.inVain+1, maxGatherPause)
}

// Gathers implements env.Gatherer: where several clients wait, more commands come when they are answered, and a turn for all
// of them costs little more than a turn for one. Time and word from outside never wait for commands: a heartbeat that is
// late can cost the leadership.
func (t *turn) Gathers() bool {
	if len(t.taken.proposals) <= 1 && !t.pending.severalWait() {
		return false
	}
	commands, urgent := t.inbox.peek()
	return !urgent && t.gathering.begins(commands)
}

// Gathered implements env.Gatherer.
func (t *turn) Gathered(took time.Duration) {
	commands, _ := t.inbox.peek()
	t.gathering.ends(took, commands)
}
