package server

import (
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestManyLeasesOfOneStream renews many leases by one stream, as clientv3 does: few commands, answers in the
// order of the requests, one for each, also behind the last request of the client. A lease that is not there
// has the TTL 0.
func TestManyLeasesOfOneStream(t *testing.T) {
	c := newCluster(t, 3)
	ctx := c.context()
	const leases, maxCommands = 1000, 100
	for k := range c.members {
		cl := c.client(k)
		known, err := cl.Grant(ctx, 30)
		if err != nil {
			t.Fatal(err)
		}
		applied := c.members[k].store.Applied()
		stream, err := pb.NewLeaseClient(cl.ActiveConnection()).LeaseKeepAlive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ids := []clientv3.LeaseID{known.ID, known.ID ^ 1}
		began := time.Now()
		for n := range leases {
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(ids[n%2])}); err != nil {
				t.Fatal(err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		for n := range leases {
			r, err := stream.Recv()
			if want := []int64{30, 0}[n%2]; err != nil || r.ID != int64(ids[n%2]) || r.TTL != want {
				t.Fatalf("answer %d of member %d: %v, %v; want lease %x, TTL %d", n, k+1, r, err, ids[n%2], want)
			}
		}
		if _, err := stream.Recv(); err == nil {
			t.Error("one answer too many")
		}
		if n := c.members[k].store.Applied() - applied; n > maxCommands {
			t.Errorf("member %d: %d renewals took %d commands and %v, want at most %d", k+1, leases, n, time.Since(began), maxCommands)
		}
	}
}

// TestSmallRequests holds that the bound of clients' requests is none of the service's own commands, which
// gather: with a small one leases are still renewed and ended.
func TestSmallRequests(t *testing.T) {
	c := newCluster(t, 1, "--max-request-bytes=1024")
	ctx := c.context()
	cl := c.client()
	const leases = 200
	stream, err := pb.NewLeaseClient(cl.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	granted := make(chan error, leases)
	for k := range leases {
		go func() {
			_, err := pb.NewLeaseClient(cl.ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: 1<<62 + int64(k), TTL: 1})
			granted <- err
		}()
	}
	for range leases {
		if err := <-granted; err != nil {
			t.Fatal(err)
		}
	}
	for k := range leases {
		if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: 1<<62 + int64(k)}); err != nil {
			t.Fatal(err)
		}
	}
	for range leases {
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	for len(c.members[0].store.Leases()) > 0 {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("%d leases have not ended", len(c.members[0].store.Leases()))
		}
	}
}
