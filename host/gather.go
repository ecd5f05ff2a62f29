package host

import "time"

const (
	// gatherWorth is the longest wait that one more command is worth: about the cost of a turn for it alone.
	gatherWorth = 100 * time.Microsecond
	// gatherHog is a wait in which other goroutines used two time slices of Go's scheduler, which is no
	// accident.
	gatherHog = 20 * time.Millisecond
	// maxGatherPause bounds the pause after a wait, as a multiple of the wait.
	maxGatherPause = 32
)

// begins reports whether the next turn should wait, while the given number of commands wait for it.
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

// ends records how long the wait took and how many commands wait now.
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

// gathers reports whether the next turn should wait for more commands. If several clients wait, more commands
// arrive when they are answered, and a turn for all of them costs little more than a turn for one. Time and
// messages never wait for commands: a late heartbeat can cost the leadership.
//
// The shard calls it, and gathered, between two turns of the group.
func (g *Group) gathers() bool {
	if len(g.work.taken.proposals) <= 1 && !g.proposals.SeveralWait() {
		return false
	}
	commands, urgent := g.inbox.peek()
	return !urgent && !g.reads.queue.HasRecords() && g.proposals.gathering.begins(commands)
}

// gathered records how long such a wait took.
func (g *Group) gathered(took time.Duration) {
	commands, _ := g.inbox.peek()
	g.proposals.gathering.ends(took, commands)
}
