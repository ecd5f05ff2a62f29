package watch

import (
	"context"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/millrace/millrace/server/feed"
)

// Store is what watches read: kv.Machine is one.
type Store interface {
	// Revision returns the visible revision and the compact revision.
	Revision() (current, compacted int64)
	Feed() *feed.Feed
	// History returns the events of ranges from a revision onwards, whole revisions only, and the next
	// revision.
	History(ctx context.Context, from int64, ranges []feed.Range, maxBytes int, prevKV bool) ([]feed.Batch, int64, error)
	// Previous returns a key as it was before an event.
	Previous(feed.Event) (*mvccpb.KeyValue, error)
}

// Bounds of queues.
const (
	streamBytes  = 1 << 20 // of one stream
	streamEvents = 4096
	eventBytes   = 64 // of an event in a queue, besides what the feed has of it
)

// hub dispatches events. Its lock is above those of streams.
type hub struct {
	store    Store
	maxBytes int64        // in all queues
	bytes    atomic.Int64 // in all queues; the events themselves are shared

	mu      sync.Mutex
	cursor  int64 // all events before it are dispatched
	index   *index
	streams map[*stream]bool
	owing   map[*stream]bool // streams that owe progress
}

func newHub(s Store, maxBytes int64) *hub {
	current, _ := s.Revision()
	s.Feed().SetWatched(false)
	return &hub{store: s, maxBytes: maxBytes, cursor: current + 1, index: newIndex(), streams: map[*stream]bool{}, owing: map[*stream]bool{}}
}

// run dispatches until ctx ends.
func (h *hub) run(ctx context.Context) {
	f := h.store.Feed()
	for {
		wait := f.Wait()
		for ctx.Err() == nil && h.dispatch(f) {
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return
		}
	}
}

// dispatch takes the next batches, and reports whether there were any.
func (h *hub) dispatch(f *feed.Feed) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	batches, next, behind := f.Next(h.cursor)
	switch {
	case behind:
		h.skip(f)
	case next == h.cursor:
		return false
	default:
		for _, b := range batches {
			h.cursor = b.Revision
			h.deliver(b)
		}
		h.cursor = next
	}
	for s := range h.owing {
		s.poke()
	}
	return true
}

// skip goes on at the end of a ring that does not reach back to the cursor: a snapshot was restored, or
// events came faster than they could be dispatched. All watchers are behind then. The caller holds mu.
func (h *hub) skip(f *feed.Feed) {
	_, next, _ := f.Bounds()
	for s := range h.streams {
		s.mu.Lock()
		s.fallBehind(h, h.cursor)
		s.mu.Unlock()
	}
	h.cursor = max(next, h.cursor)
}

// deliver appends the events of one revision to the queues of their streams. The caller holds mu.
func (h *hub) deliver(b feed.Batch) {
	found := map[*watcher][]feed.Event{}
	order := make([]*watcher, 0, 8)
	for _, e := range b.Events {
		h.index.each(e.Kv.Key, func(w *watcher) {
			if !w.wants(b.Revision, e) {
				return
			}
			if found[w] == nil {
				order = append(order, w)
			}
			found[w] = append(found[w], e)
		})
	}
	for _, w := range order {
		if !w.level { // its stream has fallen behind with an earlier one of this batch
			continue
		}
		w.stream.append(h, w, b.Revision, found[w])
	}
}

// admit makes a watcher level if its cursor allows that, and otherwise leaves it behind. It returns
// whether it is level. The caller holds both locks.
func (h *hub) admit(w *watcher) bool {
	s := w.stream
	if w.gone || w.next < h.cursor {
		return false
	}
	if delete(s.behind, w); !w.level {
		w.level = true
		h.index.add(w)
	}
	return true
}

// remove forgets a watcher. The caller holds both locks.
func (h *hub) remove(w *watcher) {
	w.gone = true
	if w.level {
		w.level = false
		h.index.remove(w)
	}
	delete(w.stream.behind, w)
}
