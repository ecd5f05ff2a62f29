package watch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/server/feed"
)

// store is a store that keeps every batch: the twin of the real one.
type store struct {
	mu        sync.Mutex
	batches   []feed.Batch // batches[k] has revision k+2
	compacted int64
	feed      *feed.Feed
	history   int // calls
}

func newStore(feedBytes int64) *store { return &store{compacted: -1, feed: feed.New(feedBytes, 1)} }

func (s *store) Revision() (int64, int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.batches)) + 1, s.compacted
}

func (s *store) Feed() *feed.Feed { return s.feed }

func (s *store) Previous(e feed.Event) (*mvccpb.KeyValue, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := int(e.Kv.ModRevision) - 3; k >= 0; k-- {
		for _, old := range s.batches[k].Events {
			if string(old.Kv.Key) == string(e.Kv.Key) {
				return old.Kv, nil
			}
		}
	}
	return nil, nil
}

func (s *store) History(_ context.Context, from int64, ranges []feed.Range, maxBytes int, _ bool) (out []feed.Batch, next int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history++
	if from < s.compacted {
		return nil, 0, rpctypes.ErrGRPCCompacted
	}
	bytes := 0
	for next = max(from, 2); next <= int64(len(s.batches))+1 && bytes < maxBytes; next++ {
		b := feed.Batch{Revision: next}
		for _, e := range s.batches[next-2].Events {
			if slices.ContainsFunc(ranges, func(r feed.Range) bool { return r.Contains(e.Kv.Key) }) {
				b.Events = append(b.Events, e)
				bytes += len(e.Kv.Key) + len(e.Kv.Value)
			}
		}
		out = append(out, b)
	}
	return out, next, nil
}

// write makes the next revision.
func (s *store) write(keys ...string) int64 {
	s.mu.Lock()
	b := feed.Batch{Revision: int64(len(s.batches)) + 2}
	for _, key := range keys {
		e := &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: b.Revision, Value: []byte(fmt.Sprint(b.Revision))}}
		if b.Revision%7 == 0 {
			e.Type, e.Kv = mvccpb.Event_DELETE, &mvccpb.KeyValue{Key: []byte(key), ModRevision: b.Revision}
		}
		b.Events = append(b.Events, feed.Event{Event: e})
	}
	s.batches = append(s.batches, b)
	s.mu.Unlock()
	s.feed.Publish([]feed.Batch{b}, b.Revision)
	return b.Revision
}

// client is a stream of a client in memory. Its Send waits for pace, if there is one.
type client struct {
	grpc.ServerStream
	ctx      context.Context
	requests chan *pb.WatchRequest
	got      chan *pb.WatchResponse
	pace     func()
}

func (c *client) Context() context.Context { return c.ctx }

func (c *client) Recv() (*pb.WatchRequest, error) {
	select {
	case r := <-c.requests:
		return r, nil
	case <-c.ctx.Done():
		return nil, c.ctx.Err()
	}
}

func (c *client) Send(r *pb.WatchResponse) error {
	if c.pace != nil {
		c.pace()
	}
	select {
	case c.got <- proto.Clone(r).(*pb.WatchResponse):
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func (c *client) create(r *pb.WatchCreateRequest) {
	c.requests <- &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: r}}
}

func (c *client) cancel(id int64) {
	c.requests <- &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}}
}

func (c *client) progress() {
	c.requests <- &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
}

func (c *client) next(t *testing.T) *pb.WatchResponse {
	t.Helper()
	select {
	case r := <-c.got:
		return r
	case <-time.After(10 * time.Second):
		t.Fatal("no response within 10 s")
		return nil
	}
}

type bench struct {
	*Service
	store *store
	t     *testing.T
}

func newBench(t *testing.T, feedBytes, memory int64, interval time.Duration) *bench {
	s := newStore(feedBytes)
	v := New(Options{Store: s, MemoryBytes: memory, ProgressInterval: interval, MaxResponse: 1 << 20,
		Header: func(rev int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: rev} }})
	var running sync.WaitGroup
	running.Go(func() { v.Run(t.Context()) })
	t.Cleanup(running.Wait)
	return &bench{v, s, t}
}

func (b *bench) client(pace func()) *client {
	c := &client{ctx: b.t.Context(), requests: make(chan *pb.WatchRequest), got: make(chan *pb.WatchResponse, 16), pace: pace}
	go func() { _ = b.Watch(c) }()
	return c
}

// TestEachEventOnce watches with fast and slow clients, from the past and from now on, over a ring that
// is much too small and queues that overflow. Each watcher must get what it asked for: complete,
// ascending, whole revisions.
func TestEachEventOnce(t *testing.T) {
	for range 6 { // how writes and watchers meet is up to the scheduler
		eachEventOnce(t)
	}
}

func eachEventOnce(t *testing.T) {
	const revisions = 3001
	b := newBench(t, 40_000, 60_000, time.Hour)
	b.store.feed.SetWatched(true) // as if another stream were open
	keys := []string{"a", "b", "c/1", "c/2", "d"}
	for range 50 {
		b.store.write(keys[rand.IntN(len(keys))])
	}
	type want struct {
		c    *client
		req  *pb.WatchCreateRequest
		from int64
	}
	var all []want
	for k := range 24 {
		var pace func()
		if k%3 == 2 {
			pace = func() { <-time.After(time.Duration(rand.IntN(3000)) * time.Microsecond) }
		}
		c := b.client(pace)
		req := &pb.WatchCreateRequest{Key: []byte("a"), PrevKv: k%2 == 0}
		switch k % 4 {
		case 1:
			req.Key, req.RangeEnd = []byte("c/"), []byte("c0")
		case 2:
			req.Key, req.RangeEnd = []byte{0}, []byte{0}
		case 3:
			req.Key, req.RangeEnd, req.Filters = []byte("b"), []byte("d"), []pb.WatchCreateRequest_FilterType{pb.WatchCreateRequest_NODELETE}
		}
		if k%5 == 0 {
			req.StartRevision = int64(2 + rand.IntN(40))
		} else if k%5 == 1 {
			req.StartRevision = 200 // the future
		}
		c.create(req)
		r := c.next(t)
		if !r.Created || r.Canceled {
			t.Fatalf("not created: %v", r)
		}
		from := req.StartRevision
		if from == 0 {
			from = r.Header.Revision + 1
		}
		all = append(all, want{c, req, from})
	}
	go func() {
		for k := range revisions {
			if k%100 == 0 {
				<-time.After(time.Millisecond)
			}
			if rand.IntN(3) == 0 {
				b.store.write(keys[0], keys[2], keys[3])
			} else {
				b.store.write(keys[rand.IntN(len(keys))])
			}
		}
		b.store.write("a", "b", "c/1", "c/2", "d") // revision 3053, which is no deletion
	}()
	last := int64(50 + 1 + revisions + 1)
	var done sync.WaitGroup
	for k, w := range all {
		done.Go(func() {
			of := feed.Range{Key: w.req.Key, End: w.req.RangeEnd}
			var have []string
			for seen, before := int64(0), int64(0); seen < last; {
				r := <-w.c.got
				for _, e := range r.Events {
					have = append(have, fmt.Sprintf("%d %v %s", e.Kv.ModRevision, e.Type, e.Kv.Key))
					seen = e.Kv.ModRevision
				}
				if len(r.Events) > 0 {
					if r.Events[0].Kv.ModRevision <= before || r.Header.Revision < seen {
						t.Errorf("client %d: a response begins with revision %d behind %d, header %d", k, r.Events[0].Kv.ModRevision, before, r.Header.Revision)
					}
					before = r.Header.Revision
				}
			}
			var expect []string
			for _, batch := range b.store.batches {
				for _, e := range batch.Events {
					if batch.Revision >= w.from && of.Contains(e.Kv.Key) && !(len(w.req.Filters) > 0 && e.Type == mvccpb.Event_DELETE) {
						expect = append(expect, fmt.Sprintf("%d %v %s", batch.Revision, e.Type, e.Kv.Key))
					}
				}
			}
			if !slices.Equal(have, expect) {
				t.Errorf("client %d from %d: %d events, want %d", k, w.from, len(have), len(expect))
			}
		})
	}
	done.Wait()
	if b.store.history == 0 {
		t.Error("no client was behind the ring: the test has not tested it")
	}
	if n := b.Stats(); n.Streams != len(all) || n.Watchers != len(all) || n.Behind != 0 {
		t.Errorf("%+v", n)
	}
}

// TestProgressIsNeverAhead asks for progress all the time, while the stream falls behind again and again.
func TestProgressIsNeverAhead(t *testing.T) {
	for range 12 { // how events and requests meet is up to the scheduler
		progressIsNeverAhead(t)
	}
}

func progressIsNeverAhead(t *testing.T) {
	b := newBench(t, 2_000, 3_000, 2*time.Millisecond)
	c := b.client(nil)
	c.create(&pb.WatchCreateRequest{Key: []byte("a"), ProgressNotify: true})
	const revisions, requests = 2000, 200
	go func() {
		for k := range revisions {
			b.store.write("a")
			if k%(revisions/requests) == 0 {
				c.progress()
			}
		}
		c.progress()
	}()
	seen, answers, quiet := int64(1), 0, 0
	for answers <= requests {
		r := c.next(t)
		for _, e := range r.Events {
			if e.Kv.ModRevision != seen+1 {
				t.Fatalf("event %d behind %d", e.Kv.ModRevision, seen)
			}
			seen = e.Kv.ModRevision
		}
		if len(r.Events) > 0 || r.Created {
			continue
		}
		if r.Header.Revision > seen {
			t.Fatalf("progress says %d, and events came through %d", r.Header.Revision, seen)
		}
		if r.WatchId == -1 {
			answers++
		} else {
			quiet++
		}
	}
	if seen != revisions+1 {
		t.Errorf("the last answer came at %d", seen)
	}
	for r := c.next(t); r.WatchId != 0 || len(r.Events) > 0 || r.Header.Revision != revisions+1; r = c.next(t) {
	}
}

func TestCompacted(t *testing.T) {
	b := newBench(t, 1<<20, 1<<20, time.Hour)
	b.store.feed.SetWatched(true) // the ring has what is compacted
	for range 10 {
		b.store.write("a")
	}
	b.store.compacted = 5
	c := b.client(nil)
	for _, row := range []struct{ from, compacted int64 }{{4, 5}, {5, 0}, {1, 5}} {
		c.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: row.from})
		if r := c.next(t); !r.Created || r.Canceled {
			t.Errorf("%v", r)
		}
		r := c.next(t)
		if row.compacted > 0 && (!r.Canceled || r.CompactRevision != row.compacted) || row.compacted == 0 && r.Events[0].Kv.ModRevision != row.from {
			t.Errorf("from %d: %v", row.from, r)
		}
	}

	// The id stays taken until the client cancels the watch, too. It gets one answer.
	c.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 4, WatchId: 9})
	c.next(t)
	if r := c.next(t); r.WatchId != 9 || !r.Canceled {
		t.Errorf("a watch of what is compacted: %v", r)
	}
	if n := b.Stats().Watchers; n != 1 {
		t.Errorf("there are %d watchers, want the one of revision 5", n)
	}
	c.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 9})
	if r := c.next(t); r.CancelReason != duplicateID {
		t.Errorf("a watch with the id of one that is compacted: %v", r)
	}
	for range 2 {
		c.cancel(9)
	}
	c.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 9})
	if r := c.next(t); r.WatchId != 9 || !r.Canceled || r.CompactRevision != 0 {
		t.Errorf("the answer to a cancel: %v", r)
	}
	if r := c.next(t); r.WatchId != 9 || !r.Created || r.Canceled {
		t.Errorf("a watch with the id of one that was cancelled: %v", r)
	}

	// A client that never cancels them leaves few of them.
	last := int64(0)
	for range maxCompacted + 1 {
		c.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 1})
		c.next(t)
		last = c.next(t).WatchId
	}
	for _, row := range []struct {
		id     int64
		reason string
	}{{last - 10, duplicateID}, {last, ""}} {
		c.create(&pb.WatchCreateRequest{Key: []byte("a"), WatchId: row.id})
		if r := c.next(t); r.CancelReason != row.reason {
			t.Errorf("a watch with the id %d, of %d: %v, want the reason %q", row.id, last, r, row.reason)
		}
	}
}

// TestRequests holds the answers to requests that are refused, and ids.
func TestRequests(t *testing.T) {
	b := newBench(t, 1<<20, 1<<20, time.Hour)
	c := b.client(nil)
	for _, row := range []struct {
		r      *pb.WatchCreateRequest
		id     int64
		reason string
	}{
		{&pb.WatchCreateRequest{Key: []byte("a")}, 0, ""},
		{&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 7}, 7, ""},
		{&pb.WatchCreateRequest{Key: []byte("a"), WatchId: 7}, -1, duplicateID},
		{&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("a")}, -1, emptyRange},
		{&pb.WatchCreateRequest{Key: []byte("b"), RangeEnd: []byte("b")}, -1, emptyRange},
		{&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: -3}, -1, rpctypes.ErrCompacted.Error()},
		{&pb.WatchCreateRequest{}, 1, ""},
	} {
		c.create(row.r)
		r := c.next(t)
		if !r.Created || r.WatchId != row.id || r.CancelReason != row.reason || r.Canceled != (row.reason != "") {
			t.Errorf("%v: %v", row.r, r)
		}
	}
	c.cancel(99)
	c.cancel(0)
	if r := c.next(t); !r.Canceled || r.WatchId != 0 {
		t.Errorf("%v", r)
	}
	b.store.write("a")
	if r := c.next(t); r.WatchId != 7 || len(r.Events) != 1 {
		t.Errorf("after the cancel of watch 0: %v", r)
	}
}

func TestRestoredSnapshot(t *testing.T) {
	b := newBench(t, 1<<20, 1<<20, time.Hour)
	c := b.client(nil)
	c.create(&pb.WatchCreateRequest{Key: []byte("a")})
	c.next(t)
	b.store.mu.Lock() // a snapshot with ten more revisions takes the place of the state
	for k := range int64(10) {
		b.store.batches = append(b.store.batches, feed.Batch{Revision: k + 2, Events: []feed.Event{{Event: &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("a"), ModRevision: k + 2}}}}})
	}
	b.store.mu.Unlock()
	b.store.feed.Restored(11)
	b.store.write("a")
	for seen := int64(1); seen < 12; {
		for _, e := range c.next(t).Events {
			if seen++; e.Kv.ModRevision != seen {
				t.Fatalf("event %d, want %d", e.Kv.ModRevision, seen)
			}
		}
	}
}

// Apply makes no events while no stream is open, and may have looked just before the first watcher came. A
// watcher that is level then gets them from the store.
func TestEventsThatWereNotMade(t *testing.T) {
	b := newBench(t, 1<<20, 1<<20, time.Hour)
	b.store.write("a")
	if _, _, bytes := b.store.feed.Bounds(); bytes != 0 {
		t.Errorf("no stream is open, and the ring has %d bytes", bytes)
	}
	c := b.client(nil)
	c.create(&pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2})
	c.next(t)
	next := int64(2)
	see := func(through int64) {
		t.Helper()
		for next <= through {
			for _, e := range c.next(t).Events {
				if e.Kv.ModRevision != next {
					t.Fatalf("event %d, want %d", e.Kv.ModRevision, next)
				}
				next++
			}
		}
	}
	see(2)
	for range 20 {
		see(b.store.write("a")) // level, by the ring
		b.store.feed.SetWatched(false)
		b.store.write("a")
		b.store.feed.SetWatched(true)
		b.store.write("a")
		see(b.store.write("a"))
	}
}

func TestFragments(t *testing.T) {
	var events []*mvccpb.Event
	for k := range 30 {
		events = append(events, &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("k"), Value: make([]byte, 100*k), ModRevision: 9}})
	}
	var have []*mvccpb.Event
	var parts []bool
	err := fragments(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 9}, Events: events}, 4000, func(r *pb.WatchResponse) error {
		if proto.Size(r) > 4000 && len(r.Events) > 1 {
			t.Errorf("a part of %d bytes", proto.Size(r))
		}
		have, parts = append(have, r.Events...), append(parts, r.Fragment)
		return nil
	})
	if err != nil || !slices.Equal(have, events) || len(parts) < 10 || slices.Index(parts, false) != len(parts)-1 {
		t.Errorf("%v, %d events in %v", err, len(have), parts)
	}
}

// TestDropped fills the queue of a client that reads nothing, again and again: what is dropped comes
// again, once.
func TestDropped(t *testing.T) {
	b := newBench(t, 1<<20, 900, time.Hour) // about a dozen events
	release := make(chan struct{})
	c := b.client(func() { <-release })
	c.create(&pb.WatchCreateRequest{Key: []byte("a")})
	c.create(&pb.WatchCreateRequest{Key: []byte("b")})
	for b.Stats().Watchers < 2 {
		<-time.After(time.Millisecond)
	}
	const events = 40
	for range events {
		b.store.write("a", "b")
	}
	for b.Stats().Behind < 2 {
		<-time.After(time.Millisecond)
	}
	if n := b.Stats(); n.QueuedBytes > 900 {
		t.Errorf("%d bytes are queued, want at most 900", n.QueuedBytes)
	}
	close(release)
	seen := map[int64]int64{0: 1, 1: 1}
	for seen[0] <= events || seen[1] <= events {
		r := c.next(t)
		for _, e := range r.Events {
			if seen[r.WatchId]++; e.Kv.ModRevision != seen[r.WatchId] {
				t.Fatalf("watch %d: event %d, want %d", r.WatchId, e.Kv.ModRevision, seen[r.WatchId])
			}
		}
	}
	b.store.write("c") // the queue has room again, and nothing is counted twice
	for b.Stats().Behind > 0 || b.Stats().QueuedBytes > 0 {
		<-time.After(time.Millisecond)
	}
}

// TestDroppedNotification drops a queue with a progress notification in it.
func TestDroppedNotification(t *testing.T) {
	h := newHub(newStore(1<<20), 1<<20)
	s := newStream(t.Context(), nil)
	w := &watcher{stream: s, of: feed.Range{Key: []byte("a")}, progress: true, next: 2}
	s.watchers[0] = w
	h.admit(w)
	e := feed.Event{Event: &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("a"), ModRevision: 2}}}
	s.append(h, w, 2, []feed.Event{e})
	s.enqueue(item{response: &pb.WatchResponse{Canceled: true}})
	s.enqueue(item{w: w, response: &pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 2}}})
	s.fallBehind(h, 3)
	if len(s.queue) != 1 || !s.queue[0].response.Canceled || s.control != 1 || w.next != 2 || !s.behind[w] || h.bytes.Load() != 0 {
		t.Errorf("queue %v, control %d, next %d, %d bytes", s.queue, s.control, w.next, h.bytes.Load())
	}
}
