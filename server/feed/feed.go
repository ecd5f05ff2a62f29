// Package feed is what Apply tells the watchers: a ring of the latest events, in the order of revisions.
// Apply never waits for a reader. A reader that is slower than the ring is behind, and reads the history from
// the store (kv.Machine.History) until its cursor is in the ring again.
//
// While no stream is open, nothing is in the ring: Apply makes no events, and the first watcher that begins
// in the past reads the history.
package feed

import (
	"bytes"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Event is one change of a key. Type and Kv are set; Kv of a deletion has the key and the revision. PrevKv is
// nil: kv.Machine.Previous reads it.
type Event struct {
	*mvccpb.Event
	// Create says that the key did not exist before the change.
	Create bool
}

// Batch is all events of one revision, in their order. It is immutable.
type Batch struct {
	Revision int64
	Events   []Event
}

// Range is a range of keys, in etcd's form: End nil is the key Key alone, an End of one zero byte is all keys
// at or behind Key.
type Range struct{ Key, End []byte }

// Contains reports whether a key is in the range.
func (r Range) Contains(key []byte) bool {
	switch {
	case len(r.End) == 0:
		return bytes.Equal(key, r.Key)
	case len(r.End) == 1 && r.End[0] == 0:
		return bytes.Compare(key, r.Key) >= 0
	}
	return bytes.Compare(key, r.Key) >= 0 && bytes.Compare(key, r.End) < 0
}

// eventOverhead is the memory of an event besides its bytes, about.
const eventOverhead = 256

// size returns the memory of a batch, about.
func (b Batch) size() (n int64) {
	for _, e := range b.Events {
		n += int64(len(e.Kv.Key)+len(e.Kv.Value)) + eventOverhead
	}
	return n
}

// Feed is a ring of batches. The zero Feed is not usable; New makes one.
type Feed struct {
	mu       sync.Mutex
	wait     chan struct{} // closed when something comes
	max      int64
	bytes    int64
	batches  []Batch // of ascending revisions
	first    int64   // all events of [first, next) are in batches
	next     int64   // the revision after the last one that is visible
	restored uint64  // how often the state was replaced

	unwatched atomic.Bool
}

// New returns a feed of up to maxBytes, behind revision.
func New(maxBytes, revision int64) *Feed {
	return &Feed{wait: make(chan struct{}), max: maxBytes, first: revision + 1, next: revision + 1}
}

// SetWatched says whether a stream is open. A new feed is watched.
func (f *Feed) SetWatched(watched bool) { f.unwatched.Store(!watched) }

// IsWatched reports whether events are wanted. One call of Apply asks once, so what it publishes is whole.
func (f *Feed) IsWatched() bool { return !f.unwatched.Load() }

// Publish appends the batches of all revisions since the last call, through revision, which is visible now.
// Without batches the revisions are not in the ring, and neither is what came before. The state machine calls
// it.
func (f *Feed) Publish(batches []Batch, revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(batches) == 0 || f.unwatched.Load() {
		f.batches, f.bytes = nil, 0
		f.first, f.next = revision+1, revision+1
		f.wake()
		return
	}
	for _, b := range batches {
		f.batches = append(f.batches, b)
		f.bytes += b.size()
	}
	f.next = max(f.next, revision+1)
	drop := 0
	for f.bytes > f.max && drop < len(f.batches) {
		f.bytes -= f.batches[drop].size()
		f.first = f.batches[drop].Revision + 1
		drop++
	}
	if drop > 0 {
		clear(f.batches[:drop]) // the memory of the events, at once
		f.batches = f.batches[drop:]
	}
	f.wake()
}

// Restored empties the feed: the state is another one now, at revision. Every cursor at or before it is
// behind.
func (f *Feed) Restored(revision int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.batches, f.bytes = nil, 0
	f.first, f.next = revision+1, revision+1
	f.restored++
	f.wake()
}

// wake ends every wait. The caller holds mu.
func (f *Feed) wake() {
	close(f.wait)
	f.wait = make(chan struct{})
}

// maxBatches bounds what Next returns at once.
const maxBatches = 1024

// Next returns the batches at or behind the revision cursor, and the cursor behind them. behind says that the
// ring does not reach back to cursor. A cursor in the future gets nothing and stays.
func (f *Feed) Next(cursor int64) (batches []Batch, next int64, behind bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case cursor < f.first:
		return nil, cursor, true
	case cursor >= f.next:
		return nil, cursor, false
	}
	lo, hi := 0, len(f.batches) // the first batch at or behind cursor
	for lo < hi {
		if mid := (lo + hi) / 2; f.batches[mid].Revision < cursor {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	batches = f.batches[lo:]
	if len(batches) > maxBatches {
		batches = batches[:maxBatches]
		next = batches[maxBatches-1].Revision + 1
	} else {
		next = f.next
	}
	return append([]Batch(nil), batches...), next, false
}

// Wait returns a channel that is closed when the next batches come, or the state is replaced. Take it before
// Next, so that nothing comes between the two.
func (f *Feed) Wait() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wait
}

// Bounds returns the revisions that the ring has, [first, next), and its bytes.
func (f *Feed) Bounds() (first, next, bytes int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.first, f.next, f.bytes
}

// Restores returns how often the state was replaced.
func (f *Feed) Restores() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.restored
}
