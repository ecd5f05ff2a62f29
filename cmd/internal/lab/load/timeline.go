package load

import (
	"sync"
	"time"
)

// A Timeline says what a load did over time. It has how many operations ended in each hundredth of a
// second, how many of them failed, and how long they took, second by second. All operations are in it, also
// from the warm-up, and those that ended after the window. So an event in the middle of a window shows as
// what it is: a gap.
//
// Clients note a few dozen operations privately before they take the lock, as for Latencies.
type Timeline struct {
	Origin time.Time // zero of the clock of this timeline: the start of the warm-up

	mu      sync.Mutex
	moments []Moment
	seconds []*Latencies // by the second in which an operation ended; nil: none ended there
}

// Moment is MomentLength of a Timeline.
type Moment struct {
	Completed, Failed uint32
	First, Last       time.Duration // when the first and the last of the completed ended; 0, 0: there is none
}

// MomentLength is the resolution of a Timeline. A gap is known exactly, if it is longer.
const MomentLength = 10 * time.Millisecond

// maxTimeline bounds the memory of a timeline: what ends later is counted in the last moment.
const maxTimeline = 2 * time.Hour

// ended is an operation that has ended. Its latency is negative if it failed.
type ended struct{ at, latency time.Duration }

const failedLatency = -1

// record adds operations.
func (t *Timeline) record(all []ended) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range all {
		at := min(max(e.at, 0), maxTimeline-1)
		i := int(at / MomentLength)
		for i >= len(t.moments) {
			t.moments = append(t.moments, Moment{})
		}
		m := &t.moments[i]
		if e.latency < 0 {
			m.Failed++
			continue
		}
		if m.Completed == 0 || e.at < m.First {
			m.First = e.at
		}
		m.Last = max(m.Last, e.at)
		m.Completed++
		s := int(at / time.Second)
		for s >= len(t.seconds) {
			t.seconds = append(t.seconds, nil)
		}
		if t.seconds[s] == nil {
			t.seconds[s] = NewLatencies()
		}
		t.seconds[s].Record(e.latency)
	}
}

// At returns the reading of the timeline's clock at a moment.
func (t *Timeline) At(moment time.Time) time.Duration { return moment.Sub(t.Origin) }

// End returns the end of the last moment.
func (t *Timeline) End() time.Duration { return time.Duration(len(t.moments)) * MomentLength }

// between returns the moments that begin in [from, to).
func (t *Timeline) between(from, to time.Duration) []Moment {
	lo := max(int((from+MomentLength-1)/MomentLength), 0)
	hi := min(int((to+MomentLength-1)/MomentLength), len(t.moments))
	if lo >= hi {
		return nil
	}
	return t.moments[lo:hi]
}

// Counts returns the operations that ended in [from, to), to MomentLength.
func (t *Timeline) Counts(from, to time.Duration) (completed, failed uint64) {
	for _, m := range t.between(from, to) {
		completed, failed = completed+uint64(m.Completed), failed+uint64(m.Failed)
	}
	return completed, failed
}

// Rate returns the operations a second of [from, to).
func (t *Timeline) Rate(from, to time.Duration) float64 {
	if to <= from {
		return 0
	}
	completed, _ := t.Counts(from, to)
	return float64(completed) / (to - from).Seconds()
}

// LongestGap returns the longest part of [from, to) in which no operation completed, and when it began.
func (t *Timeline) LongestGap(from, to time.Duration) (gap, began time.Duration) {
	last := from
	for _, m := range t.between(from, to) {
		if m.Completed == 0 {
			continue
		}
		if first := min(m.First, to); first-last > gap { // the last moment may reach beyond
			gap, began = first-last, last
		}
		last = max(last, m.Last)
	}
	if to-last > gap {
		gap, began = to-last, last
	}
	return gap, began
}

// Latencies returns the latencies of the operations that ended in the seconds that [from, to) touches.
func (t *Timeline) Latencies(from, to time.Duration) *Latencies {
	all := NewLatencies()
	for s := int(from / time.Second); s < len(t.seconds) && time.Duration(s)*time.Second < to; s++ {
		if t.seconds[s] != nil {
			all.Merge(t.seconds[s])
		}
	}
	return all
}

// Second returns the latencies of the operations that ended in a second, which are none if nothing ended
// there. They must not be changed.
func (t *Timeline) Second(s int) *Latencies {
	if s < 0 || s >= len(t.seconds) || t.seconds[s] == nil {
		return NewLatencies()
	}
	return t.seconds[s]
}

// Drift compares the throughput of the last third of [from, to) with that of its first: 0.1 is a tenth more.
func (t *Timeline) Drift(from, to time.Duration) float64 {
	third := (to - from) / 3
	first, last := t.Rate(from, from+third), t.Rate(to-third, to)
	if first == 0 {
		return 0
	}
	return last/first - 1
}

// noter is one client's end of a timeline. A nil noter notes nothing.
type noter struct {
	t       *Timeline
	pending []ended
}

func (n *noter) record(at, latency time.Duration) {
	if n == nil {
		return
	}
	n.pending = append(n.pending, ended{at, latency})
	if len(n.pending) >= seriesEntries || at-n.pending[0].at > maxNoteAge {
		n.flush()
	}
}

// maxNoteAge is how long a client that still completes operations keeps what it noted.
const maxNoteAge = 100 * time.Millisecond

func (n *noter) flush() {
	if n == nil || len(n.pending) == 0 {
		return
	}
	n.t.record(n.pending)
	n.pending = n.pending[:0]
}
