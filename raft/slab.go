package raft

import "github.com/millrace/millrace/raft/raftpb"

// slab gathers messages and hands them out in batches that are carved from one array after the other.
//
// What is handed out is immutable for ever and may be kept by workers and transports, so its memory cannot be used a
// second time. But the rest of an array can serve the next batch: batch after batch is cut off in front, with its capacity
// clipped, and a new array is made only when the present one is used up. So a busy node makes one array for some fifty
// messages, where it made several for each Ready. Rejected: a sync.Pool, as nobody says when a message is done with.
//
// Invariant: what has been handed out is never written to again; every place behind it is empty.
//
// A reader that keeps one message keeps its whole array, and what the other messages in it point to. That is bounded: an
// array has at most maxSlab messages (160 KiB), or serves one batch only, of which it is at most twice the length; and when
// an array points to more than a MiB of payloads no further batch is carved from it (weigh). A node that is at rest keeps no
// array (rest).
type slab struct {
	waiting []raftpb.Message // not handed out yet; the capacity behind them is the rest of the array
	weight  uint64           // payload bytes that the array's messages point to
	next    int              // the length of the next array, at least
}

const (
	// An array of fullSlab messages fills a size class of the allocator (8 KiB) with little left over.
	smallSlab = 4
	fullSlab  = 51
	maxSlab   = 1024

	// maxPinnedBytes bounds the payloads that one may keep from being freed by keeping others.
	maxPinnedBytes = 1 << 20
)

// place adds an empty message and returns it, to be filled before the next is placed.
func (s *slab) place() *raftpb.Message {
	n := len(s.waiting)
	if n == cap(s.waiting) {
		s.grow()
	}
	s.waiting = s.waiting[:n+1]
	return &s.waiting[n]
}

// grow makes an array when the present one is used up, and moves what is waiting to it. Arrays begin small, as many nodes
// say little.
func (s *slab) grow() {
	n := len(s.waiting)
	wider := make([]raftpb.Message, n, max(s.next, smallSlab, 2*n))
	copy(wider, s.waiting)
	s.waiting = wider
	if n == 0 {
		s.weight = 0
	}
	s.next = min(2*cap(wider), fullSlab)
}

// weigh notes that a message placed here points to so many bytes of payload.
func (s *slab) weigh(bytes uint64) { s.weight += bytes }

// take hands out what is waiting.
func (s *slab) take() []raftpb.Message {
	n := len(s.waiting)
	if n == 0 {
		return nil
	}
	batch := s.waiting[:n:n]
	s.waiting = s.waiting[n:]
	if n > fullSlab {
		s.next = min(4*n, maxSlab) // long batches come in a row
	}
	// Another like this one, if it did not fit into the rest, would be moved half way.
	if rest := cap(s.waiting); rest < n || n+rest > maxSlab || s.weight > maxPinnedBytes {
		s.waiting = nil
	}
	return batch
}

// drop forgets what is waiting; it was not handed out, so that its places can be used.
func (s *slab) drop() {
	if cap(s.waiting) > maxSlab {
		s.waiting = nil
	}
	clear(s.waiting)
	s.waiting = s.waiting[:0]
}

// rest lets the array go if nothing is waiting, and begins with small ones again.
func (s *slab) rest() {
	s.next = 0
	if len(s.waiting) == 0 {
		s.waiting = nil
	}
}
