package raft

import "github.com/millrace/millrace/raft/raftpb"

// messageArena collects messages and hands them out in batches. It cuts one batch after the other from the
// front of an array, with the capacity clipped, and makes a new array only when the present one is used up. A
// busy node thus allocates once for about fifty messages, not several times for each Ready.
//
// A message that was handed out is immutable, and workers and transports may keep it for ever, so its memory
// is never reused. Rejected: a sync.Pool, because nothing tells the core when a message is no longer in
// use.
//
// Invariant: a message that was handed out is never written to again, and every message behind it is empty.
//
// Keeping one message keeps its whole array alive, and the payloads that the other messages of the array
// reference, so arrays are bounded. An array longer than maxArena messages (160 KiB) serves a single batch,
// and is at most twice as long as that batch. No batch is cut from an array whose messages already reference
// maxPinnedBytes of payload. An idle node keeps no array (shrink).
type messageArena struct {
	waiting []raftpb.Message // not handed out yet; the capacity behind them is the rest of the array
	payload uint64           // bytes that the messages of the array reference
	length  int              // of the next array, at least
}

const (
	// The first array after a pause has minArena messages, because many nodes say little. Each further array
	// is twice as long, up to fullArena messages, which fill a size class of the allocator (8 KiB).
	minArena  = 4
	fullArena = 51
	maxArena  = 1024

	// maxPinnedBytes bounds the payload that a reader keeps alive by keeping some other payload.
	maxPinnedBytes = 1 << 20
)

// next adds an empty message and returns it. The caller fills it before it asks for another.
func (a *messageArena) next() *raftpb.Message {
	n := len(a.waiting)
	if n == cap(a.waiting) {
		a.grow()
	}
	a.waiting = a.waiting[:n+1]
	return &a.waiting[n]
}

// grow makes a new array and moves the waiting messages to it.
func (a *messageArena) grow() {
	n := len(a.waiting)
	if n == 0 {
		a.payload = 0
	}
	longer := make([]raftpb.Message, n, max(a.length, minArena, 2*n))
	copy(longer, a.waiting)
	a.waiting = longer
	a.length = min(2*cap(longer), fullArena)
}

// addPayload records that a message in the array references n bytes of payload.
func (a *messageArena) addPayload(n uint64) { a.payload += n }

// cut hands out the waiting messages as one batch.
func (a *messageArena) cut() []raftpb.Message {
	n := len(a.waiting)
	if n == 0 {
		return nil
	}
	batch := a.waiting[:n:n]
	a.waiting = a.waiting[n:]
	if n > fullArena {
		a.length = min(4*n, maxArena) // a long batch is rarely the only one
	}
	// A batch of the same length must fit into the rest, or it would have to move when half of it is written.
	if left := cap(a.waiting); left < n || n+left > maxArena || a.payload > maxPinnedBytes {
		a.waiting = nil
	}
	return batch
}

// discard drops the waiting messages. They were never handed out, so their memory is reused.
func (a *messageArena) discard() {
	if cap(a.waiting) > maxArena {
		a.waiting = nil
	}
	clear(a.waiting)
	a.waiting = a.waiting[:0]
}

// shrink releases the array if no message waits. The next array is a short one again.
func (a *messageArena) shrink() {
	a.length = 0
	if len(a.waiting) == 0 {
		a.waiting = nil
	}
}
