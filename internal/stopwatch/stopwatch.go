// Package stopwatch measures pieces of work in benchmarks. What prepares a piece is not measured, so a
// benchmark may drive a turn or a lane by hand. It also has a disk that costs next to nothing.
//
// With -cold, each piece finds the processor's own caches full of something else. On a busy host the kernel
// and other goroutines run between two turns, so this is nearer to what a turn costs there. Without it, one
// sees what a piece executes.
package stopwatch

import (
	"flag"
	"runtime"
	"slices"
	"testing"
	"time"
)

var cold = flag.Bool("cold", false, "benchmarks of pieces: empty the caches of a core before each piece")

// Watch measures pieces of one kind. Its zero value is ready.
type Watch struct {
	took   []time.Duration
	pieces int
	since  time.Time // when the piece began

	counts        bool   // the allocations of this piece
	counted       uint64 // pieces of which they were counted
	allocs, bytes uint64
	before, after runtime.MemStats
}

// Allocations are counted in some pieces, and time is taken in the others: to count stops the world.
const (
	warmPieces    = 200
	countedPieces = 200
)

// Time runs one piece of work.
func (w *Watch) Time(piece func()) {
	w.Begin()
	piece()
	w.End()
}

// Begin begins a piece.
func (w *Watch) Begin() {
	if w.counts = w.pieces >= warmPieces && w.counted < countedPieces; w.counts {
		runtime.ReadMemStats(&w.before)
	}
	w.pieces++
	if *cold {
		evict()
	}
	w.since = time.Now()
}

// End ends the piece that was begun.
func (w *Watch) End() {
	took := time.Since(w.since)
	if !w.counts {
		w.took = append(w.took, took)
		return
	}
	runtime.ReadMemStats(&w.after)
	w.counted++
	w.allocs += w.after.Mallocs - w.before.Mallocs
	w.bytes += w.after.TotalAlloc - w.before.TotalAlloc
}

// Allocations returns how many allocations a piece has made, on average of those that were counted.
func (w *Watch) Allocations() float64 { return float64(w.allocs) / float64(w.counted) }

// Report reports the median time of a piece, and the mean of its allocations. A median does without the
// pieces in which other programs had the processor.
func (w *Watch) Report(b *testing.B, piece string) {
	b.Helper()
	if len(w.took) > 0 {
		slices.Sort(w.took)
		b.ReportMetric(float64(w.took[len(w.took)/2].Nanoseconds()), "ns/"+piece)
	}
	if w.counted > 0 {
		b.ReportMetric(w.Allocations(), "allocs/"+piece)
		b.ReportMetric(float64(w.bytes)/float64(w.counted), "B/"+piece)
	}
}

// evictBytes is more than the second level cache of a core.
const evictBytes = 4 << 20

var evicted [evictBytes]byte

// evict writes one byte into each cache line of an array.
func evict() {
	for i := 0; i < len(evicted); i += 64 {
		evicted[i]++
	}
}
