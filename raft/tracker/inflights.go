package tracker

import "slices"

// Inflights is the window of appends that a follower has been sent and has not acknowledged: a ring of (last
// index, bytes), freed in order. It is bounded in messages, and softly in bytes: the message that crosses the
// byte limit is still sent, and then the window is full. The ring grows towards its limit only as far as it
// is used, and a long one is released when nothing is in flight.
type Inflights struct {
	start, count int
	ring         []inflight
	size         int
	bytes        uint64
	maxBytes     uint64
}

type inflight struct {
	index uint64
	bytes uint64
}

// NewInflights returns a window of at most size messages (> 0) and about maxBytes bytes (0: no limit in
// bytes).
func NewInflights(size int, maxBytes uint64) *Inflights {
	return &Inflights{size: size, maxBytes: maxBytes}
}

// Clone returns a copy that shares no memory with in.
func (in *Inflights) Clone() *Inflights {
	c := *in
	c.ring = slices.Clone(in.ring)
	return &c
}

// Full reports whether nothing more may be sent until an acknowledgement arrives.
func (in *Inflights) Full() bool {
	return in.count == in.size || (in.maxBytes != 0 && in.bytes >= in.maxBytes)
}

// Count returns the number of messages in flight.
func (in *Inflights) Count() int { return in.count }

// Bytes returns the bytes in flight.
func (in *Inflights) Bytes() uint64 { return in.bytes }

// Add records an append whose last entry is index. Indexes come in ascending order, and the window must not
// be Full; the caller (Progress.SentEntries) has checked that.
func (in *Inflights) Add(index, bytes uint64) {
	if in.count == len(in.ring) {
		in.grow()
	}
	in.ring[in.wrap(in.start+in.count)] = inflight{index, bytes}
	in.count++
	in.bytes += bytes
}

func (in *Inflights) grow() {
	wider := make([]inflight, min(max(2*len(in.ring), 4), in.size))
	for i := range in.count {
		wider[i] = in.ring[in.wrap(in.start+i)]
	}
	in.ring, in.start = wider, 0
}

// wrap returns the position in the ring for i, which may be past its end by less than its length.
func (in *Inflights) wrap(i int) int {
	if i >= len(in.ring) {
		return i - len(in.ring)
	}
	return i
}

// FreeLE removes every append whose last entry is at or below index: the follower has it.
func (in *Inflights) FreeLE(index uint64) {
	for in.count > 0 && in.ring[in.start].index <= index {
		in.bytes -= in.ring[in.start].bytes
		in.start = in.wrap(in.start + 1)
		in.count--
	}
	if in.count == 0 && len(in.ring) > maxIdleRing {
		in.start, in.ring = 0, nil
	}
}

// maxIdleRing is the longest ring that an empty window keeps.
const maxIdleRing = 256

func (in *Inflights) reset() {
	in.start, in.count, in.bytes = 0, 0, 0
}
