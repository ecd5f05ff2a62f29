package watch

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/millrace/millrace/server/feed"
)

// Options are those of New.
type Options struct {
	Store Store
	// Header returns the header of a response at a revision.
	Header func(revision int64) *pb.ResponseHeader
	// MemoryBytes bounds what waits in all queues.
	MemoryBytes int64
	// ProgressInterval is the time between progress notifications.
	ProgressInterval time.Duration
	// MaxResponse is the size at which a response is cut for a watcher that wants fragments.
	MaxResponse int
}

// Service is the Watch service.
type Service struct {
	pb.UnsafeWatchServer
	hub              *hub
	header           func(int64) *pb.ResponseHeader
	progressInterval time.Duration
	maxResponse      int
}

// New returns the service. Run dispatches.
func New(o Options) *Service {
	return &Service{hub: newHub(o.Store, o.MemoryBytes), header: o.Header, progressInterval: o.ProgressInterval, maxResponse: o.MaxResponse}
}

// Run dispatches events until ctx ends.
func (v *Service) Run(ctx context.Context) { v.hub.run(ctx) }

// Stats are numbers of the service.
type Stats struct {
	Streams, Watchers, Behind int
	QueuedBytes               int64
}

// Stats returns how much is watched now.
func (v *Service) Stats() (n Stats) {
	v.hub.mu.Lock()
	defer v.hub.mu.Unlock()
	n = Stats{Streams: len(v.hub.streams), QueuedBytes: v.hub.bytes.Load()}
	for s := range v.hub.streams {
		s.mu.Lock()
		for _, w := range s.watchers {
			if !w.gone {
				n.Watchers++
			}
		}
		n.Behind += len(s.behind)
		s.mu.Unlock()
	}
	return n
}

// jitter spreads progress notifications, as etcd does.
func jitter(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/10+1))
}

// Watch serves a stream.
func (v *Service) Watch(g pb.Watch_WatchServer) error {
	ctx, cancel := context.WithCancelCause(g.Context())
	defer cancel(nil)
	s := newStream(ctx, g.Send)
	v.hub.mu.Lock()
	v.hub.streams[s] = true
	v.hub.store.Feed().SetWatched(true)
	v.hub.mu.Unlock()
	defer v.leave(s)
	go func() { // ends with the stream: Recv returns then
		if err := v.receive(s, g); !errors.Is(err, io.EOF) {
			cancel(err)
		} // else the client sends nothing any more, and still wants events: the JSON gateway does so
	}()
	err := s.run(v)
	if cause := context.Cause(ctx); ctx.Err() != nil && cause != nil {
		err = cause
	}
	if errors.Is(err, context.Canceled) {
		return rpctypes.ErrGRPCWatchCanceled
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// leave forgets a stream.
func (v *Service) leave(s *stream) {
	v.hub.mu.Lock()
	defer v.hub.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.watchers {
		v.hub.remove(w)
	}
	v.hub.bytes.Add(-s.bytes)
	s.queue, s.bytes = nil, 0
	delete(v.hub.streams, s)
	v.hub.store.Feed().SetWatched(len(v.hub.streams) > 0)
	delete(v.hub.owing, s)
}

// receive handles the requests of a stream until it ends, and returns why.
func (v *Service) receive(s *stream, g pb.Watch_WatchServer) error {
	for {
		r, err := g.Recv()
		if err == nil {
			err = s.waitForSpace()
		}
		if err != nil {
			return err
		}
		switch {
		case r.GetCreateRequest() != nil:
			v.create(s, r.GetCreateRequest())
		case r.GetCancelRequest() != nil:
			v.cancel(s, r.GetCancelRequest().WatchId)
		case r.GetProgressRequest() != nil:
			v.progress(s)
		}
	}
}

// Reasons for which a watch is not created; texts of etcd, which has no names for them in rpctypes.
const (
	emptyRange  = "mvcc: watcher range is empty"
	duplicateID = "mvcc: duplicate watch ID provided on the WatchStream"
)

// create begins a watch.
func (v *Service) create(s *stream, r *pb.WatchCreateRequest) {
	w := &watcher{stream: s, prevKV: r.PrevKv, fragmented: r.Fragment, progress: r.ProgressNotify, next: r.StartRevision, quiet: true}
	w.of = feed.Range{Key: r.Key, End: r.RangeEnd}
	if len(r.Key) == 0 {
		w.of.Key = []byte{0} // the smallest key
	}
	for _, f := range r.Filters {
		w.noPut = w.noPut || f == pb.WatchCreateRequest_NOPUT
		w.noDelete = w.noDelete || f == pb.WatchCreateRequest_NODELETE
	}
	v.hub.mu.Lock()
	defer v.hub.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	current, compacted := v.hub.store.Revision()
	created := &pb.WatchResponse{Header: v.header(current), Created: true}
	switch {
	case r.StartRevision < 0:
		created.CancelReason = rpctypes.ErrCompacted.Error()
	case len(w.of.End) > 0 && !bytes.Equal(w.of.End, fromKey) && bytes.Compare(w.of.Key, w.of.End) >= 0:
		created.CancelReason = emptyRange
	case r.WatchId != 0 && s.watchers[r.WatchId] != nil:
		created.CancelReason = duplicateID
	}
	if created.CancelReason != "" {
		created.Canceled, created.WatchId = true, -1
		s.enqueue(item{response: created})
		return
	}
	if w.id = r.WatchId; w.id == 0 {
		for s.watchers[s.nextID] != nil {
			s.nextID++
		}
		w.id = s.nextID
		s.nextID++
	}
	if w.next == 0 {
		w.next = current + 1
	}
	created.WatchId = w.id
	s.watchers[w.id] = w
	s.enqueue(item{response: created})
	if w.next < compacted || !v.hub.admit(w) { // replay cancels what is compacted
		s.behind[w] = true
		s.poke()
	}
}

// cancel ends a watch. One that is not there is ignored, as in etcd.
func (v *Service) cancel(s *stream, id int64) {
	v.hub.mu.Lock()
	defer v.hub.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.watchers[id]
	if w == nil {
		return
	}
	v.hub.remove(w)
	delete(s.watchers, id)
	current, _ := v.hub.store.Revision()
	s.enqueue(item{response: &pb.WatchResponse{Header: v.header(current), WatchId: id, Canceled: true}})
}

// maxOwed bounds the progress requests of a stream that wait; more of them are answered with those.
const maxOwed = 1024

// progress notes that the client wants to know when everything through the present revision was sent.
// It is always answered.
func (v *Service) progress(s *stream) {
	v.hub.mu.Lock()
	defer v.hub.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	current, _ := v.hub.store.Revision()
	if len(s.owed) < maxOwed {
		s.owed = append(s.owed, current)
	} else {
		s.owed[len(s.owed)-1] = current
	}
	v.hub.owing[s] = true
	s.poke()
}

// wire returns events as clients get them, with the previous keys if the watcher wants them.
func (v *Service) wire(w *watcher, events []feed.Event) []*mvccpb.Event {
	out := make([]*mvccpb.Event, len(events))
	for k, e := range events {
		out[k] = e.Event
		if !w.prevKV || e.Create {
			continue
		}
		if kv, err := v.hub.store.Previous(e); err == nil && kv != nil { // else it is compacted, and missing as in etcd
			out[k] = &mvccpb.Event{Type: e.Type, Kv: e.Kv, PrevKv: kv}
		}
	}
	return out
}

// fragments sends a response in parts of at most about maxBytes, at least one event each. All but the
// last one say that more follows.
func fragments(r *pb.WatchResponse, maxBytes int, send func(*pb.WatchResponse) error) error {
	if proto.Size(r) < maxBytes || len(r.Events) < 2 {
		return send(r)
	}
	base := proto.Size(&pb.WatchResponse{Header: r.Header, WatchId: r.WatchId}) + 16
	for events := r.Events; len(events) > 0; {
		n, size := 0, base
		for n < len(events) {
			of := proto.Size(events[n]) + 8
			if n > 0 && size+of >= maxBytes {
				break
			}
			size += of
			n++
		}
		part := &pb.WatchResponse{Header: r.Header, WatchId: r.WatchId, Events: events[:n], Fragment: n < len(events)}
		if err := send(part); err != nil {
			return err
		}
		events = events[n:]
	}
	return nil
}
