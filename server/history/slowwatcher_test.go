//go:build unix

package history

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

var slowFor = flag.Duration("slow-for", 0, "how long TestSlowWatcher's client reads nothing; 0 skips the test")

// maxSlowBytes bounds what a client that reads nothing costs its member.
const maxSlowBytes = 2 << 20

// TestSlowWatcher: a client watches everything and reads nothing while others write. That costs its member
// little, and then the client gets every event. Both followers have a watch that is read; the other follower
// tells what the load alone has cost.
func TestSlowWatcher(t *testing.T) {
	if *slowFor == 0 {
		t.Skip("-args -slow-for 10m runs it")
	}
	members := startMembers(t, 3)
	for _, m := range members {
		m.args = append(slices.DeleteFunc(m.args, func(arg string) bool { return strings.HasPrefix(arg, "--watch-feed") }), "--enable-pprof")
		m.start(t)
		t.Cleanup(m.kill)
	}
	first := connect(t, members[0].addr, members[1].addr, members[2].addr)
	for began := time.Now(); ; {
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := first.Put(short, "begin", "")
		if cancel(); err == nil {
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatal(err)
		}
	}
	followers := members[:0:0]
	for _, m := range members {
		if st, err := first.Status(t.Context(), m.addr); err != nil {
			t.Fatal(err)
		} else if st.Leader != st.Header.MemberId {
			followers = append(followers, m)
		}
	}
	slow, other := followers[0], followers[1]
	for _, m := range followers {
		stream := openWatch(t, m.addr, 0)
		go func() {
			for err := error(nil); err == nil; {
				_, err = stream.Recv()
			}
		}()
	}
	load(t, members, 5*time.Second)
	begun, err := first.Put(t.Context(), "slow", "begins")
	if err != nil {
		t.Fatal(err)
	}
	stream := openWatch(t, slow.addr, begun.Header.Revision)
	slowBefore, otherBefore := heap(t, slow), heap(t, other)
	puts := load(t, members, *slowFor)
	slowAfter, otherAfter := heap(t, slow), heap(t, other)
	end, err := first.Put(t.Context(), "slow", "ends")
	if err != nil {
		t.Fatal(err)
	}
	cost := slowAfter - slowBefore - (otherAfter - otherBefore)
	t.Logf("%d puts in %v; heap of the member with the slow client %d → %d KiB, of the other follower %d → %d KiB: the client costs %d KiB",
		puts, *slowFor, slowBefore>>10, slowAfter>>10, otherBefore>>10, otherAfter>>10, cost>>10)
	if cost > maxSlowBytes {
		t.Errorf("a client that reads nothing costs %d bytes, want at most %d", cost, maxSlowBytes)
	}
	began, next := time.Now(), begun.Header.Revision
	for next <= end.Header.Revision {
		r, err := stream.Recv()
		if err != nil || r.Canceled {
			t.Fatalf("the watch has ended at revision %d: %v %v", next, r, err)
		}
		for _, e := range r.Events {
			if e.Kv.ModRevision != next {
				t.Fatalf("revision %d came, want %d", e.Kv.ModRevision, next)
			}
			next++
		}
	}
	t.Logf("%d events were read in %v", next-begun.Header.Revision, time.Since(began))
}

// openWatch watches all keys. clientv3 would read on its own.
func openWatch(t *testing.T, addr string, from int64) pb.Watch_WatchClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := pb.NewWatchClient(conn).Watch(t.Context())
	if err == nil {
		err = stream.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{
			CreateRequest: &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: from},
		}})
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// load writes for a while, and returns how many puts were acknowledged.
func load(t *testing.T, members []*member, d time.Duration) (puts int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	var n atomic.Int64
	var running sync.WaitGroup
	value := strings.Repeat("v", 200)
	for id := range 4 {
		cl := connect(t, members[id%len(members)].addr)
		for k := range 25 {
			running.Go(func() {
				for ctx.Err() == nil {
					if _, err := cl.Put(ctx, fmt.Sprintf("key-%d", id*25+k), value); err == nil {
						n.Add(1)
					}
				}
			})
		}
	}
	running.Wait()
	return n.Load()
}

// heap returns the bytes that live in a member behind a collection.
func heap(t *testing.T, m *member) (bytes int64) {
	t.Helper()
	r, err := http.Get("http://" + m.addr + "/debug/pprof/heap?gc=1&debug=1")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "# HeapAlloc = ")
	if _, err := fmt.Sscan(after, &bytes); err != nil {
		t.Fatalf("%s: %v", r.Request.URL, err)
	}
	return bytes
}
