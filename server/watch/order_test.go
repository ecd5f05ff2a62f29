package watch

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/millrace/millrace/server/feed"
)

// TestCreatedComesFirst creates a watch of the past, and of what is compacted, after the queue was taken.
// Nothing of a watch may come before the response that creates it: clientv3 cancels a watch that it does not
// know.
func TestCreatedComesFirst(t *testing.T) {
	st := newStore(1 << 20)
	st.write("a")
	v := New(Options{Store: st, MemoryBytes: 1 << 20, Header: func(int64) *pb.ResponseHeader { return &pb.ResponseHeader{} }})
	for _, compacted := range []int64{-1, 3} {
		st.compacted = compacted
		var sent []*pb.WatchResponse
		s := newStream(t.Context(), func(r *pb.WatchResponse) error { sent = append(sent, r); return nil })
		s.take()
		v.create(s, &pb.WatchCreateRequest{Key: []byte("a"), StartRevision: 2})
		if more, err := s.replay(v); err != nil || !more || len(sent) > 0 {
			t.Errorf("before the response that creates it: %v, more %v, %v", sent, more, err)
		}
		if err := s.sendItems(v, s.take()); err != nil {
			t.Fatal(err)
		}
		if _, err := s.replay(v); err != nil || len(sent) != 2 || !sent[0].Created || sent[1].Created {
			t.Errorf("%v, %v", sent, err)
		}
	}
}

// TestDroppedAfterTaken drops the queue at a revision whose events for another watch were taken already: they
// must not come twice.
func TestDroppedAfterTaken(t *testing.T) {
	h := newHub(newStore(1<<20), 1<<30)
	s := newStream(t.Context(), nil)
	watch := func(id int64) *watcher {
		w := &watcher{stream: s, id: id, of: feed.Range{Key: []byte("a")}, next: 2}
		s.watchers[id] = w
		h.admit(w)
		return w
	}
	first, second, third := watch(1), watch(2), watch(3)
	e := []feed.Event{{Event: &mvccpb.Event{Kv: &mvccpb.KeyValue{Key: []byte("a"), ModRevision: 2, Value: make([]byte, streamBytes*2/3)}}}}
	s.append(h, first, 2, e)
	s.take() // and sent
	s.append(h, second, 2, e)
	s.append(h, third, 2, e) // too much
	if len(s.behind) != 3 || first.next != 3 || second.next != 2 || third.next != 2 {
		t.Errorf("%d are behind, at %d, %d and %d; want all, at 3, 2 and 2", len(s.behind), first.next, second.next, third.next)
	}
}
