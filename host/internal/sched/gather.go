package sched

import "time"

// Gathering decides when a turn lets other goroutines run first, so that more commands arrive for it
// (decision 0003). A worker does the same before it sends, so that more groups share a frame. If these
// goroutines are clients with commands the wait pays, since each turn, append and sync then serves more of
// them. If they are other parts of the user's program, each wait costs whole time slices of the processor. So
// a wait has to pay for itself. After a wait that took longer than its commands are worth there is a pause of
// the same length, in which no turn waits. Each further such wait in a row doubles the pause, up to 32 times
// the wait. After a wait of several time slices the first pause is eight times the wait. So a busy process
// loses a thirtieth of its time, and after a wait that was long by accident (the machine is shared) the pause
// is short.
//
// Rejected: giving up for a number of turns. Under 20 busy goroutines a wait takes 200 ms and a turn 1 ms, so
// 256 turns pass at once (throughput 0.2 of that without waits, decision 0007).
type Gathering struct {
	Now func() time.Duration

	before     int           // commands that waited when the wait began
	inVain     int           // waits in a row that were not worth their time
	pauseUntil time.Duration // no waits before this time
}

const (
	// gatherWorth is the longest wait that one more command is worth: about the cost of a turn for it alone.
	gatherWorth = 100 * time.Microsecond
	// gatherHog is a wait in which other goroutines used two time slices of Go's scheduler, which is no
	// accident.
	gatherHog = 20 * time.Millisecond
	// maxGatherPause bounds the pause after a wait, as a multiple of the wait.
	maxGatherPause = 32
)

// Begins reports whether the next turn should wait, while the given number of commands wait for it.
func (g *Gathering) Begins(waiting int) bool {
	if g.pauseUntil > 0 {
		if g.Now() < g.pauseUntil {
			return false
		}
		g.pauseUntil = 0
	}
	g.before = waiting
	return true
}

// Ends records how long the wait took and how many commands wait now.
func (g *Gathering) Ends(took time.Duration, waiting int) {
	if took <= gatherWorth*time.Duration(1+waiting-g.before) {
		g.inVain = 0
		return
	}
	if took >= gatherHog {
		g.inVain = max(g.inVain, 3)
	}
	g.pauseUntil = g.Now() + took*time.Duration(min(1<<g.inVain, maxGatherPause))
	g.inVain = min(g.inVain+1, maxGatherPause)
}
