package proposals

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/lock"
)

const (
	// drainSample is the least time over which the rate is measured, and maxDrainSample the most: a longer
	// one counts time in which there was nothing to take.
	drainSample    = 10 * time.Millisecond
	maxDrainSample = time.Second
	// MaxSpaceWaits bounds the waits for space in one group.
	MaxSpaceWaits = 1 << 14
)

// DrainRate measures how fast commands leave the inbox. The turn adds what it takes, and only a refusal
// reads the clock.
type DrainRate struct {
	taken atomic.Int64 // bytes, so far

	mu     lock.Mutex
	at     time.Duration // of the latest sample
	before int64         // taken then
	rate   float64       // bytes a second
}

// Add adds bytes that a turn has taken.
func (d *DrainRate) Add(bytes int64) {
	if bytes > 0 {
		d.taken.Add(bytes)
	}
}

// PerSecond returns the rate at which commands leave the inbox, in bytes, or 0 if it is not known, because
// the last refusal was long ago.
func (d *DrainRate) PerSecond(now time.Duration) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if passed := now - d.at; passed >= drainSample {
		taken := d.taken.Load()
		if d.rate = 0; passed <= maxDrainSample {
			d.rate = float64(taken-d.before) / passed.Seconds()
		}
		d.at, d.before = now, taken
	}
	return d.rate
}

// SpaceWait is a wait for space for one command. It must not be copied.
type SpaceWait struct {
	bytes int64
	place sched.Place[*SpaceWait]
	done  chan struct{}
	err   error // read after done is closed
}

// Done is closed when the wait has ended; Err then says why.
func (w *SpaceWait) Done() <-chan struct{} { return w.done }

// Err is nil if the command may fit now. It may be called when Done is closed.
func (w *SpaceWait) Err() error { return w.err }

// End ends a wait that has not begun (SpaceWaiters.Ask).
func (w *SpaceWait) End(err error) {
	w.err = err
	close(w.done)
}

// SpaceWaiters holds the waits for space, the first one first. Any goroutine may call its methods.
type SpaceWaiters struct {
	n      atomic.Int64 // waits; 0 spares the turn the lock
	mu     lock.Mutex
	closed error
	waits  sched.Ring[*SpaceWait]
}

// Waiting returns how many wait. It takes no lock.
func (s *SpaceWaiters) Waiting() int { return int(s.n.Load()) }

// Ask begins a wait for some bytes. It returns false if too many wait; the caller must then end w.
func (s *SpaceWaiters) Ask(w *SpaceWait, bytes int64) (ok bool) {
	w.bytes, w.done, w.place.Owner = bytes, make(chan struct{}), w
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed != nil:
		w.End(outcome.WithCause(outcome.ErrStopped, s.closed))
	case s.waits.Len() >= MaxSpaceWaits:
		return false
	default:
		s.waits.Push(&w.place)
		s.n.Add(1)
	}
	return true
}

// Leave ends a wait whose caller has given up.
func (s *SpaceWaiters) Leave(w *SpaceWait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.place.In() != nil {
		w.place.Leave()
		s.n.Add(-1)
	}
}

// Grant ends the first waits, as many as fit into the bytes that are free.
func (s *SpaceWaiters) Grant(free int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := s.waits.First(); p != nil && p.Owner.bytes <= free; p = s.waits.First() {
		free -= p.Owner.bytes
		p.Leave()
		s.n.Add(-1)
		p.Owner.End(nil)
	}
}

// Release ends all waits, as if there were space: what comes then is refused for another reason.
func (s *SpaceWaiters) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(nil)
}

// Close ends all waits, and later ones at once.
func (s *SpaceWaiters) Close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed == nil {
		s.closed = cause
		s.end(outcome.WithCause(outcome.ErrStopped, cause))
	}
}

func (s *SpaceWaiters) end(err error) {
	for p := s.waits.Pop(); p != nil; p = s.waits.Pop() {
		s.n.Add(-1)
		p.Owner.End(err)
	}
}
