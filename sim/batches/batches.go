// Package batches has rules that say when a leader begins its next batch, while earlier ones are not
// committed: the question that the thesis leaves open (§10.2.2). A batch is what one turn of a group puts
// into the log, and sends to all followers at once.
//
// They are several answers to the same question, to be read side by side:
//
//	AtOnce    always: those that receive make batches of what arrives while they write
//	Depth     when fewer than a fixed number of batches are open
//	Halfway   the second one when half of the measured time of the first has passed
//	Spaced    a fixed time after the one before it has begun
//	Window    when the bytes that are open are fewer than what the followers can take in a round
//	Stages    when fewer batches are open than the stages, network and disk, that a round was measured to have
//
// README.md compares them and has the curves. A host decides by the rules of package host/batches (decision
// 0036), so these are of the simulator only. A rule decides by a State, and so by nothing that it keeps
// itself. It is never asked while no batch is open, and asked again after each commit, so no rule can hold
// commands for ever.
package batches

import (
	"fmt"
	"time"
)

// State is what a leader knows of its batches. Times are those of one monotonic clock.
type State struct {
	Now time.Duration
	// Open is how many batches have begun and are not committed, at least 1, and OpenBytes their commands.
	Open      int
	OpenBytes int64
	// First and Last are when the oldest and the newest of them began.
	First, Last time.Duration
	// Measured is what earlier batches took.
	Measured
}

// Rule decides whether the next batch may begin. It has no state and serves any number of groups.
type Rule interface {
	// Name is its name in flags and reports.
	Name() string
	// Next reports whether the next batch may begin now. If not, it is asked again when a batch is committed
	// and, if again is not 0, at that time, which is later than s.Now.
	Next(s State) (begins bool, again time.Duration)
}

// AtOnce begins each batch at once.
type AtOnce struct{}

// Name implements Rule.
func (AtOnce) Name() string { return "at once" }

// Next implements Rule.
func (AtOnce) Next(State) (begins bool, again time.Duration) { return true, 0 }

// Depth lets n batches be open, at least 1. With 1 it is the double buffering of the thesis.
type Depth int

// Name implements Rule.
func (d Depth) Name() string { return fmt.Sprintf("depth %d", int(d)) }

// Next implements Rule.
func (d Depth) Next(s State) (begins bool, again time.Duration) { return s.Open < int(d), 0 }

// Halfway lets two batches be open. The second begins when half of the mean time of a batch has passed since
// the first began. So a command waits for its batch half as long, on average, as with Depth(1).
type Halfway struct{}

// Name implements Rule.
func (Halfway) Name() string { return "halfway" }

// Next implements Rule.
func (Halfway) Next(s State) (begins bool, again time.Duration) {
	if s.Open > 1 {
		return false, 0
	}
	return after(s.Now, s.First+s.Round/2)
}

// Spaced begins a batch a fixed time after the one before it. With the round trip of the network it begins a
// batch when its followers have received the one before, without a message that says so.
type Spaced struct {
	By    time.Duration
	Named string // its name in reports
}

// Name implements Rule.
func (r Spaced) Name() string { return r.Named }

// Next implements Rule.
func (r Spaced) Next(s State) (begins bool, again time.Duration) { return after(s.Now, s.Last+r.By) }

// Window lets as many bytes be open as were committed, at the best rate that was measured, in the least time
// of a batch, times this factor. It is to batches what BBR is to packets.
type Window float64

// Name implements Rule.
func (w Window) Name() string { return fmt.Sprintf("window × %g", float64(w)) }

// Next implements Rule.
func (w Window) Next(s State) (begins bool, again time.Duration) {
	most := float64(w) * s.Rate * s.LeastRound.Seconds()
	return s.Rate == 0 || float64(s.OpenBytes) < most, 0
}

// Stages lets one batch be open for the disk, and more for the rest of a round: as many as a disk writes in
// that time, evenly spaced. Fewer would not keep a follower's disk busy. The leader's disk stands for the
// disks of the followers.
type Stages struct{}

// Name implements Rule.
func (Stages) Name() string { return "stages" }

// Next implements Rule.
func (Stages) Next(s State) (begins bool, again time.Duration) {
	if s.LeastFlush == 0 || s.LeastRound == 0 {
		return true, 0
	}
	rest := max(s.LeastRound-s.LeastFlush, 0)
	depth := 1 + int((rest+s.LeastFlush-1)/s.LeastFlush)
	if s.Open >= depth {
		return false, 0
	}
	return after(s.Now, s.Last+s.LeastRound/time.Duration(depth))
}

func after(now, at time.Duration) (begins bool, again time.Duration) {
	if now >= at {
		return true, 0
	}
	return false, at
}
