package compat

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
)

// watching is the watches of a side.
type watching struct {
	t         *testing.T
	side      *side
	stream    pb.Watch_WatchClient
	responses chan *pb.WatchResponse
	of        []*watched // in the order in which they were asked for
	byID      map[int64]*watched
	behind    int64 // through this revision everything has come
}

// watched is one watch.
type watched struct {
	asked    *pb.WatchCreateRequest
	created  bool
	canceled bool
	log      strings.Builder
}

func newWatching(ctx context.Context, t *testing.T, s *side) *watching {
	t.Helper()
	stream, err := pb.NewWatchClient(s.conn).Watch(ctx)
	if err != nil {
		t.Fatal(err)
	}
	w := &watching{t: t, side: s, stream: stream, responses: make(chan *pb.WatchResponse), byID: map[int64]*watched{}}
	go func() {
		defer close(w.responses)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case w.responses <- r:
			case <-ctx.Done():
				return
			}
		}
	}()
	return w
}

// begin asks for a watch, and returns when there is one.
func (w *watching) begin(r *pb.WatchCreateRequest) {
	one := &watched{asked: proto.Clone(r).(*pb.WatchCreateRequest)}
	w.of, w.behind = append(w.of, one), 0
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: one.asked}})
	for !one.created {
		w.take(<-w.responses)
	}
}

// cancel ends a watch.
func (w *watching) cancel(id int64) {
	w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: id}}})
	for one := w.byID[id]; one != nil && !one.canceled; {
		w.take(<-w.responses)
	}
}

func (w *watching) send(r *pb.WatchRequest) {
	if err := w.stream.Send(r); err != nil {
		w.t.Fatalf("%s: %v", w.side.name, err)
	}
}

// catchUp takes everything through a revision. etcd does not answer while a watch is behind, so it asks
// again. It does not answer either if there is no watch.
func (w *watching) catchUp(revision int64) {
	lives := func(one *watched) bool { return !one.canceled }
	for w.behind < revision && slices.ContainsFunc(w.of, lives) {
		w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}})
		for again := time.After(30 * time.Millisecond); again != nil && w.behind < revision; {
			select {
			case a := <-w.responses:
				w.take(a)
			case <-again:
				again = nil
			}
		}
	}
}

// take takes a response.
func (w *watching) take(a *pb.WatchResponse) {
	switch {
	case a == nil:
		w.t.Fatalf("%s: the stream of watches has ended", w.side.name)
	case a.WatchId == -1 && !a.Canceled:
		w.behind = a.Header.Revision
		return
	}
	one := w.byID[a.WatchId]
	if a.Created {
		one = w.of[len(w.of)-1]
		one.created = true
		fmt.Fprintf(&one.log, "  created as %d at %d: %s\n", a.WatchId, a.Header.Revision, a.CancelReason)
		if !a.Canceled {
			w.byID[a.WatchId] = one
		}
	}
	if one.canceled = one.canceled || a.Canceled; a.Canceled {
		fmt.Fprintf(&one.log, "  canceled, created %t, compacted at %d: %s\n", a.Created, a.CompactRevision, a.CancelReason)
	}
	if a.CompactRevision > 0 { // else etcd tells no progress any more
		w.send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: a.WatchId}}})
		w.behind = 0
	}
	for _, e := range a.Events {
		fmt.Fprintf(&one.log, "  %s\n", jsonOf(e))
	}
}
