package outcome

import (
	"math/bits"
	"time"
)

// Histogram counts times. It has no lock, so one goroutine at a time may use it.
type Histogram struct {
	// Counts are how many times took less than 2^i microseconds, and not less than half of that. The last one
	// also counts longer ones.
	Counts [histogramBuckets]uint64
	Sum    time.Duration
}

// histogramBuckets is the length of Histogram.Counts. The last bucket counts what took longer than 16 s.
const histogramBuckets = 26

// Add counts a time. One below zero counts as zero.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.Counts[min(bits.Len64(uint64(d/time.Microsecond)), histogramBuckets-1)]++
	h.Sum += d
}

// Count is how many times were added.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// CommandTimes say how long commands took from Receipt.Queued to each later time of their receipts. A command
// that is tried again is appended and replicated again. Applied is when the state machine got it, and a
// command with a session is told its commit then.
type CommandTimes struct {
	Appended, Replicated, Committed, Applied Histogram
}
