package server

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestASnapshotIsReceived stops a member until it needs a snapshot, with a watch that was on it, leases that
// end meanwhile, and compactions. Then all members have the same, and the watch misses nothing.
func TestASnapshotIsReceived(t *testing.T) {
	for _, engine := range []string{"pebble", "memory"} {
		t.Run(engine, func(t *testing.T) { receiveSnapshot(t, engine) })
	}
}

func receiveSnapshot(t *testing.T, engine string) {
	c := newCluster(t, 3, "--storage-engine="+engine, "--snapshot-log-bytes=65536")
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cl := c.client(0, 1)
	watch := c.client(2, 0).Watch(ctx, "k/", clientv3.WithPrefix())
	write := func(rounds int, compact bool) (revision int64) {
		t.Helper()
		for n := range rounds {
			g, err := cl.Grant(ctx, int64(1+n%3*100))
			for k := 0; k < 3 && err == nil; k++ {
				_, err = cl.Put(ctx, fmt.Sprintf("k/%d", (n*3+k)%50), strings.Repeat("v", 4000), clientv3.WithLease(g.ID))
			}
			if err == nil && n%7 == 0 {
				_, err = cl.Revoke(ctx, g.ID)
			}
			var p *clientv3.PutResponse
			if err == nil {
				p, err = cl.Put(ctx, "k/last", "")
			}
			if err == nil && compact && n%10 == 9 {
				_, err = cl.Compact(ctx, p.Header.Revision-5)
			}
			if err != nil {
				t.Fatal(err)
			}
			revision = p.Header.Revision
		}
		return revision
	}
	write(10, false)
	for _, compact := range []bool{false, true} {
		// What the leader had for the member when it stopped may wait at the sender, and lead to entries that the
		// log has. Then it needs no snapshot, and all is tried again.
		for try := 1; ; try++ {
			c.stop(2)
			write(60, compact)
			c.start(2)
			write(5, compact)
			if _, err := c.client(2).Get(ctx, "k/1"); err != nil {
				t.Fatal(err)
			}
			if c.members[2].store.Feed().Restores() > 0 {
				break
			}
			if try == 20 {
				t.Fatal("no snapshot was received in 20 tries")
			}
		}
	}
	end := write(1, false)
	for next := int64(2); next <= end; {
		r, ok := <-watch
		if !ok || r.Err() != nil {
			t.Fatalf("the watch has ended before revision %d: %v", next, r.Err())
		}
		for _, e := range r.Events {
			switch e.Kv.ModRevision {
			case next:
				next++
			case next - 1: // of one revision
			default:
				t.Fatalf("revision %d, want %d", e.Kv.ModRevision, next)
			}
		}
	}
	compareMembers(t, ctx, c)
}

// compareMembers waits until short leases have ended, and holds that all members have the same state.
func compareMembers(t *testing.T, ctx context.Context, c *cluster) {
	t.Helper()
	state := func(k int) string {
		if _, err := c.client(k).Get(ctx, "k/1"); err != nil {
			t.Fatal(err)
		}
		st := c.members[k].store
		leases := st.Leases()
		short, keys := 0, 0
		for _, l := range leases {
			if _, of, _ := st.Lease(l.ID, true); l.TTL == 1 {
				short++
			} else {
				keys += len(of)
			}
		}
		hash, compacted, revision, err := st.HashKV(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		swept, _ := st.Swept()
		_, inUse := st.Sizes()
		sum, _ := st.Hash(ctx)
		return fmt.Sprintf("short leases %d, revision %d, hash %x, compacted %d, swept %d, in use %d, digest %x, keys of leases %d, leases %v",
			short, revision, hash, compacted, swept, inUse, sum, keys, leases)
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		all := []string{state(0), state(1), state(2)}
		if len(slices.Compact(slices.Clone(all))) == 1 && strings.HasPrefix(all[0], "short leases 0,") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the members differ, or short leases live on:\n%.300s\n%.300s\n%.300s", all[0], all[1], all[2])
		}
		<-time.After(50 * time.Millisecond)
	}
}
