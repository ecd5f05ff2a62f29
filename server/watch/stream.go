package watch

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/millrace/millrace/server/feed"
)

// watcher is one watch of a stream. Fields of the third block are under the locks of the hub and the stream.
type watcher struct {
	stream *stream
	id     int64
	of     feed.Range

	noPut, noDelete    bool
	prevKV, fragmented bool
	progress           bool

	level bool  // it is in the index
	gone  bool  // it was cancelled
	next  int64 // the first revision that it may still get. While it is level: events before it are not for it
	quiet bool  // no event was sent since the last tick of progress
}

// wants reports whether an event is for the watcher, whose key is known to be in its range.
func (w *watcher) wants(revision int64, e feed.Event) bool {
	return revision >= w.next && !(w.noPut && !deletes(e)) && !(w.noDelete && deletes(e))
}

func deletes(e feed.Event) bool { return e.Type == mvccpb.Event_DELETE }

// item is one element of a queue: a response without events, or events of one revision for one watcher.
// A progress notification is a response with the watcher it is for.
type item struct {
	response *pb.WatchResponse
	w        *watcher
	revision int64
	events   []feed.Event
	bytes    int64
}

// maxControl is how many responses without events may wait. The stream takes no more requests meanwhile.
const maxControl = 1024

// stream is the queue of one stream and the watchers of it. One goroutine sends what is in it.
type stream struct {
	ctx  context.Context
	send func(*pb.WatchResponse) error
	wake chan struct{} // has room for one

	mu       sync.Mutex
	watchers map[int64]*watcher
	behind   map[*watcher]bool
	queue    []item
	bytes    int64
	events   int
	sending  int64 // bytes that were taken from the queue and are not sent yet; of the goroutine that sends
	control  int
	owed     []int64       // revisions of progress requests that are not answered, ascending
	drained  chan struct{} // closed when control has become small
	nextID   int64
}

func newStream(ctx context.Context, send func(*pb.WatchResponse) error) *stream {
	return &stream{ctx: ctx, send: send, wake: make(chan struct{}, 1), watchers: map[int64]*watcher{}, behind: map[*watcher]bool{}, drained: make(chan struct{})}
}

// poke wakes the goroutine that sends.
func (s *stream) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// append queues events of a level watcher. A stream with too much is behind: at this revision. The
// caller holds the lock of the hub.
func (s *stream) append(h *hub, w *watcher, revision int64, events []feed.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := int64(len(events)) * eventBytes
	for _, e := range events {
		n += int64(len(e.Kv.Key) + len(e.Kv.Value))
	}
	full := s.events > 0 && (s.bytes+n > streamBytes || s.events+len(events) > streamEvents)
	if full || h.bytes.Load()+n > h.maxBytes {
		s.fallBehind(h, revision)
		return
	}
	s.queue = append(s.queue, item{w: w, revision: revision, events: events, bytes: n})
	w.next = revision + 1 // these may be sent before the stream falls behind at the same revision
	s.bytes += n
	s.events += len(events)
	h.bytes.Add(n)
	s.poke()
}

// fallBehind drops all events of the queue. Each level watcher is behind, at the first of its events that was
// dropped, or at revision, before which all of its events are sent. The caller holds both locks.
func (s *stream) fallBehind(h *hub, revision int64) {
	first := map[*watcher]int64{}
	kept := s.queue[:0]
	for _, i := range s.queue {
		switch {
		case i.response != nil && i.w != nil: // progress, which must not overtake what is dropped
			s.control--
		case i.response != nil:
			kept = append(kept, i)
		case first[i.w] == 0:
			first[i.w] = i.revision
		}
	}
	clear(s.queue[len(kept):])
	h.bytes.Add(-s.bytes)
	s.queue, s.bytes, s.events = kept, 0, 0
	for _, w := range s.watchers {
		if !w.level {
			continue
		}
		at, dropped := first[w]
		if !dropped {
			at = max(w.next, revision)
		}
		w.level, w.next = false, at
		h.index.remove(w)
		s.behind[w] = true
	}
	s.poke()
}

// enqueue queues a response without events. The caller holds mu.
func (s *stream) enqueue(i item) {
	s.queue = append(s.queue, i)
	s.control++
	s.poke()
}

// waitForSpace waits until few responses without events are queued: a client that sends requests and reads
// nothing waits.
func (s *stream) waitForSpace() error {
	for {
		s.mu.Lock()
		full, drained := s.control >= maxControl, s.drained
		s.mu.Unlock()
		if !full {
			return nil
		}
		select {
		case <-drained:
		case <-s.ctx.Done():
			return s.ctx.Err()
		}
	}
}

// take takes the whole queue. Its bytes count until they are sent.
func (s *stream) take() []item {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.queue
	s.sending += s.bytes
	s.queue, s.bytes, s.events = nil, 0, 0
	if s.control >= maxControl {
		close(s.drained)
		s.drained = make(chan struct{})
	}
	s.control = 0
	return taken
}

// run sends until the stream ends.
func (s *stream) run(v *Service) error {
	tick := time.NewTicker(jitter(v.progressInterval))
	defer tick.Stop()
	defer func() { v.hub.bytes.Add(-s.sending) }()
	for s.ctx.Err() == nil {
		items := s.take()
		for len(items) > 0 {
			n := together(items)
			if err := s.sendItems(v, items[:n]); err != nil {
				return err
			}
			for _, i := range items[:n] {
				s.sending -= i.bytes
				v.hub.bytes.Add(-i.bytes)
			}
			items = items[n:]
		}
		more, err := s.replay(v)
		if err != nil {
			return err
		}
		if err := s.payProgress(v); err != nil {
			return err
		}
		if more {
			continue
		}
		select {
		case <-s.wake:
		case <-tick.C:
			s.tellQuiet(v)
		case <-s.ctx.Done():
		}
	}
	return s.ctx.Err()
}

// Bounds of what one response gathers.
const (
	responseBytes  = 1 << 20
	responseEvents = 1000
)

// together returns how many items go into one response: events of one watcher, up to a bound.
func together(items []item) int {
	if items[0].response != nil {
		return 1
	}
	n, bytes, events := 1, items[0].bytes, len(items[0].events)
	for n < len(items) && items[n].w == items[0].w {
		bytes += items[n].bytes
		if events += len(items[n].events); bytes > responseBytes || events > responseEvents {
			break
		}
		n++
	}
	return n
}

func (s *stream) sendItems(v *Service, items []item) error {
	if items[0].response != nil {
		return s.send(items[0].response)
	}
	var events []feed.Event
	for _, i := range items {
		events = append(events, i.events...)
	}
	return s.sendEvents(v, items[0].w, items[len(items)-1].revision, events)
}

// sendEvents sends events of one watcher, in fragments if it wants them.
func (s *stream) sendEvents(v *Service, w *watcher, revision int64, events []feed.Event) error {
	s.mu.Lock()
	gone := w.gone
	w.quiet = false
	s.mu.Unlock()
	if gone {
		return nil
	}
	r := &pb.WatchResponse{Header: v.header(revision), WatchId: w.id, Events: v.wire(w, events)}
	if !w.fragmented {
		return s.send(r)
	}
	return fragments(r, v.maxResponse, s.send)
}

// payProgress answers requests for progress whose revision is reached: everything through it is
// dispatched, and nothing of it waits.
func (s *stream) payProgress(v *Service) error {
	s.mu.Lock()
	owes := len(s.owed) > 0
	s.mu.Unlock()
	if !owes {
		return nil
	}
	v.hub.mu.Lock()
	s.mu.Lock()
	reached := v.hub.cursor - 1
	for w := range s.behind {
		reached = min(reached, w.next-1)
	}
	for _, i := range s.queue {
		if i.response == nil {
			reached = min(reached, i.revision-1)
		}
	}
	paid := 0
	for paid < len(s.owed) && s.owed[paid] <= reached {
		paid++
	}
	last := int64(0)
	if paid > 0 {
		last = s.owed[paid-1]
	}
	s.owed = s.owed[paid:]
	if len(s.owed) == 0 {
		delete(v.hub.owing, s)
	}
	s.mu.Unlock()
	v.hub.mu.Unlock()
	for range paid {
		if err := s.send(&pb.WatchResponse{Header: v.header(last), WatchId: -1}); err != nil {
			return err
		}
	}
	return nil
}

// tellQuiet queues a progress notification for each watcher that wants them and had no event for an interval.
func (s *stream) tellQuiet(v *Service) {
	v.hub.mu.Lock()
	defer v.hub.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watchers {
		if w.progress && w.level && w.quiet && w.next <= v.hub.cursor {
			s.enqueue(item{w: w, response: &pb.WatchResponse{Header: v.header(v.hub.cursor - 1), WatchId: w.id}})
		}
		w.quiet = true
	}
}
