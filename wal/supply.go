package wal

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/internal/lock"
)

// supply is what the log keeps ready beside its tail: the segments after it, the spares that segments are
// made of (spare.go), and sealed segments on their way to become cold (files.go).
//
// A segment or a spare is made under a claim and under no lock, so neither appends nor readers wait for the
// disk that works on it. One is made at a time, so ids stay without gaps.
type supply struct {
	// mu guards the fields below, for moments only.
	mu       lock.Mutex
	claimed  bool      // a segment or a spare is being made: claim
	released sync.Cond // of mu: claimed became false
	ready    []*segment
	cooling  []*segment // sealed and durable, and not cold yet
	lastID   uint64     // the highest id in use
	spares   []spare    // one is the reserve

	starved    atomic.Bool   // the reserve was used up; no lock
	spareCount atomic.Uint64 // of spares, for readers without mu
}

// claim waits until nothing is being made, and keeps others from making a segment or a spare until release.
// Log.mu must not be held, except in a recovery.
func (s *supply) claim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.claimed {
		s.released.Wait()
	}
	s.claimed = true
}

func (s *supply) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claimed = false
	s.released.Broadcast()
}

// segment returns the k-th segment after the tail, or nil if it was not made yet.
func (s *supply) segment(k int) *segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k >= len(s.ready) {
		return nil
	}
	return s.ready[k]
}

// take hands over the segment after the tail. There is one.
func (s *supply) take() *segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.ready[0]
	s.ready = s.ready[1:]
	return next
}

// hasSpare reports whether there is a spare, even if it is the reserve.
func (s *supply) hasSpare() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.spares) > 0
}

// addSpare takes over a file whose name is durable.
func (s *supply) addSpare(file spare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spares = append(s.spares, file)
	s.spareCount.Store(uint64(len(s.spares)))
}

// takeSpare hands over the spare that was added last. The caller holds the claim and knows that there is one.
func (s *supply) takeSpare() spare {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := len(s.spares) - 1
	file := s.spares[last]
	s.spares = s.spares[:last]
	s.spareCount.Store(uint64(last))
	return file
}

// coolLater lets the helper make a sealed, durable segment cold. The helper may still write zeros to it
// before.
func (s *supply) coolLater(seg *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cooling = append(s.cooling, seg)
}

// nextToCool returns a segment that is to become cold, or nil.
func (s *supply) nextToCool() *segment {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.cooling) == 0 {
		return nil
	}
	seg := s.cooling[0]
	s.cooling = slices.Delete(s.cooling, 0, 1)
	return seg
}
