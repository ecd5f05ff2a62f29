package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/millrace/millrace/server/config"
)

// cluster is some members in this process.
type cluster struct {
	t       *testing.T
	configs []Config
	members []*Server
}

// ports returns addresses that are free now.
func ports(t testing.TB, n int) (addrs []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, l.Addr().String())
		defer l.Close()
	}
	return addrs
}

func newCluster(t *testing.T, n int, args ...string) *cluster {
	t.Helper()
	c := &cluster{t: t}
	peers := ports(t, n)
	var initial []string
	for k, p := range peers {
		initial = append(initial, fmt.Sprintf("m%d=http://%s", k+1, p))
	}
	clients := ports(t, n)
	for k := range n {
		all := append([]string{
			fmt.Sprintf("--name=m%d", k+1), "--data-dir=" + t.TempDir(), "--listen-peer-urls=http://" + peers[k], "--initial-cluster=" + strings.Join(initial, ","),
			"--listen-client-urls=http://" + clients[k], "--advertise-client-urls=http://" + clients[k],
			"--heartbeat-interval=20", "--election-timeout=200",
		}, args...)
		l, err := config.Load(all, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		c.configs = append(c.configs, Config{Config: l.Config, Logger: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		c.members = append(c.members, nil)
		c.start(k)
	}
	for _, m := range c.members {
		select {
		case <-m.Ready():
		case <-time.After(20 * time.Second):
			t.Fatal("a member is not ready within 20 s")
		}
	}
	t.Cleanup(func() {
		for k := range c.members {
			c.stop(k)
		}
	})
	return c
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	if w.t.Context().Err() == nil {
		w.t.Logf("%s", b)
	}
	return len(b), nil
}

func (c *cluster) start(k int) {
	c.t.Helper()
	m, err := Start(c.t.Context(), c.configs[k])
	if err != nil {
		c.t.Fatal(err)
	}
	c.members[k] = m
}

func (c *cluster) stop(k int) {
	if c.members[k] == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := c.members[k].Close(ctx); err != nil {
		c.t.Errorf("close member %d: %v", k+1, err)
	}
	c.members[k] = nil
}

func (c *cluster) endpoint(k int) string { return "http://" + c.members[k].Addrs()[0].String() }

// client returns a client of some members; of all without numbers.
func (c *cluster) client(of ...int) *clientv3.Client {
	c.t.Helper()
	if len(of) == 0 {
		for k := range c.members {
			of = append(of, k)
		}
	}
	var endpoints []string
	for _, k := range of {
		endpoints = append(endpoints, c.endpoint(k))
	}
	cl, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = cl.Close() })
	return cl
}

func (c *cluster) context() context.Context {
	ctx, cancel := context.WithTimeout(c.t.Context(), 30*time.Second)
	c.t.Cleanup(cancel)
	return ctx
}

// story is what a client does with a cluster of any size.
func story(t *testing.T, c *cluster) {
	ctx := c.context()
	cl := c.client()
	w := cl.Watch(ctx, "k/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	if r := <-w; !r.Created {
		t.Fatalf("watch: %+v", r)
	}
	p1, err := cl.Put(ctx, "k/1", "one")
	if err != nil {
		t.Fatal(err)
	}
	p2, err := cl.Put(ctx, "k/1", "two", clientv3.WithPrevKV())
	if err != nil || string(p2.PrevKv.Value) != "one" || p2.Header.Revision != p1.Header.Revision+1 {
		t.Fatalf("put: %v, %v", p2, err)
	}
	for k := range c.members {
		g, err := c.client(k).Get(ctx, "k/1")
		if err != nil || len(g.Kvs) != 1 || string(g.Kvs[0].Value) != "two" || g.Kvs[0].Version != 2 || g.Header.MemberId != c.members[k].ID() {
			t.Fatalf("get of member %d: %v, %v", k+1, g, err)
		}
	}
	txn, err := cl.Txn(ctx).If(clientv3.Compare(clientv3.Value("k/1"), "=", "two")).Then(clientv3.OpPut("k/2", "x"), clientv3.OpGet("k/", clientv3.WithPrefix())).Commit()
	if err != nil || !txn.Succeeded || len(txn.Responses[1].GetResponseRange().Kvs) != 2 {
		t.Fatalf("txn: %v, %v", txn, err)
	}
	d, err := cl.Delete(ctx, "k/", clientv3.WithPrefix())
	if err != nil || d.Deleted != 2 {
		t.Fatalf("delete: %v, %v", d, err)
	}
	var events []string
	for len(events) < 5 {
		for _, e := range (<-w).Events {
			old := ""
			if e.PrevKv != nil {
				old = string(e.PrevKv.Value)
			}
			events = append(events, fmt.Sprintf("%v %s %s<%s", e.Type, e.Kv.Key, e.Kv.Value, old))
		}
	}
	if have, want := strings.Join(events, ", "), "PUT k/1 one<, PUT k/1 two<one, PUT k/2 x<, DELETE k/1 <two, DELETE k/2 <x"; have != want {
		t.Fatalf("watch: %s, want %s", have, want)
	}
	// A watch of the past sees the same.
	past := cl.Watch(ctx, "k/", clientv3.WithPrefix(), clientv3.WithRev(p1.Header.Revision))
	n := 0
	for n < 5 {
		n += len((<-past).Events)
	}
	if n != 5 {
		t.Fatalf("watch from revision %d: %d events", p1.Header.Revision, n)
	}
	one := c.client(0) // another member may learn of a compaction later
	if _, err := one.Compact(ctx, d.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if r := <-one.Watch(ctx, "k/", clientv3.WithRev(1)); r.CompactRevision != d.Header.Revision {
		t.Fatalf("watch of what is compacted: %+v", r)
	}
	leases(t, c, cl)
	locks(t, c)
}

func leases(t *testing.T, c *cluster, cl *clientv3.Client) {
	ctx := c.context()
	short, err := cl.Grant(ctx, 1)
	if err != nil || short.TTL != 1 {
		t.Fatalf("grant: %+v, %v", short, err)
	}
	kept, err := cl.Grant(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	alive, err := cl.KeepAlive(ctx, kept.ID)
	if err != nil {
		t.Fatal(err)
	}
	for id, key := range map[clientv3.LeaseID]string{short.ID: "short", kept.ID: "kept"} {
		if _, err := cl.Put(ctx, key, "v", clientv3.WithLease(id)); err != nil {
			t.Fatal(err)
		}
	}
	ttl, err := cl.TimeToLive(ctx, kept.ID, clientv3.WithAttachedKeys())
	if err != nil || ttl.GrantedTTL != 1 || len(ttl.Keys) != 1 {
		t.Fatalf("time to live: %+v, %v", ttl, err)
	}
	w := cl.Watch(ctx, "short", clientv3.WithFilterPut())
	select {
	case r := <-w:
		if len(r.Events) != 1 || r.Events[0].Type != clientv3.EventTypeDelete {
			t.Fatalf("%+v", r)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("a lease of 1 s has not ended within 10 s")
	}
	if r := <-alive; r == nil || r.TTL != 1 {
		t.Fatalf("keep alive: %v", r)
	}
	if g, err := cl.Get(ctx, "kept"); err != nil || len(g.Kvs) != 1 {
		t.Fatalf("the lease that is kept has ended: %v, %v", g, err)
	}
	if _, err := cl.Revoke(ctx, kept.ID); err != nil {
		t.Fatal(err)
	}
	if g, err := cl.Get(ctx, "kept"); err != nil || len(g.Kvs) != 0 {
		t.Fatalf("the key of a revoked lease: %v, %v", g, err)
	}
	if ttl, err := cl.TimeToLive(ctx, kept.ID); err != nil || ttl.TTL != -1 {
		t.Fatalf("time to live of a revoked lease: %+v, %v", ttl, err)
	}
}

// locks runs clientv3's mutex and election on different members, and holds that one is in at a time.
func locks(t *testing.T, c *cluster) {
	ctx := c.context()
	const clients, rounds = 3, 3
	done := make(chan error, clients)
	inside := make(chan struct{}, 1)
	for k := range clients {
		cl := c.client(k % len(c.members))
		go func() {
			done <- func() error {
				s, err := concurrency.NewSession(cl, concurrency.WithTTL(5), concurrency.WithContext(ctx))
				if err != nil {
					return err
				}
				defer s.Close()
				m := concurrency.NewMutex(s, "lock")
				for range rounds {
					if err := m.Lock(ctx); err != nil {
						return err
					}
					select {
					case inside <- struct{}{}:
					default:
						return fmt.Errorf("two clients have the lock")
					}
					<-inside
					if err := m.Unlock(ctx); err != nil {
						return err
					}
				}
				e := concurrency.NewElection(s, "election")
				if err := e.Campaign(ctx, fmt.Sprint(k)); err != nil {
					return err
				}
				if r, err := e.Leader(ctx); err != nil || string(r.Kvs[0].Value) != fmt.Sprint(k) {
					return fmt.Errorf("leader %v, %w", r, err)
				}
				return e.Resign(ctx)
			}()
		}()
	}
	for range clients {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneMember(t *testing.T)    { story(t, newCluster(t, 1)) }
func TestThreeMembers(t *testing.T) { story(t, newCluster(t, 3)) }
func TestInMemory(t *testing.T)     { story(t, newCluster(t, 3, "--storage-engine=memory")) }

// TestRestart closes a member and all, and finds the data; a watch goes on where it was.
func TestRestart(t *testing.T) {
	c := newCluster(t, 3)
	ctx := c.context()
	cl := c.client(0, 1)
	w := cl.Watch(ctx, "k", clientv3.WithPrefix())
	put := func(k int) {
		t.Helper()
		if _, err := cl.Put(ctx, fmt.Sprintf("k%d", k), "v"); err != nil {
			t.Fatal(err)
		}
	}
	for k := range 20 {
		if put(k); k == 10 {
			c.stop(2)
		}
	}
	c.start(2)
	other := c.client(2)
	if g, err := other.Get(ctx, "k", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || g.Count != 20 {
		t.Fatalf("a member that was away: %v, %v", g, err)
	}
	c.stop(0) // the watch may be there: it goes on at the other one
	for k := 20; k < 30; k++ {
		put(k)
	}
	c.start(0)
	seen := map[string]bool{}
	for len(seen) < 30 {
		r := <-w
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		for _, e := range r.Events {
			if seen[string(e.Kv.Key)] {
				t.Fatalf("%s came twice", e.Kv.Key)
			}
			seen[string(e.Kv.Key)] = true
		}
	}
	hash := func(k int) uint32 {
		h, err := cl.HashKV(ctx, c.endpoint(k), 0)
		if err != nil {
			t.Fatal(err)
		}
		return h.Hash
	}
	for k := range c.members {
		if _, err := c.client(k).Get(ctx, "k0"); err != nil {
			t.Fatal(err)
		}
	}
	before := hash(0)
	for k := range c.members {
		if hash(k) != before {
			t.Errorf("the hash of member %d differs", k+1)
		}
		c.stop(k)
	}
	for k := range c.members {
		c.start(k)
	}
	again := c.client()
	if g, err := again.Get(ctx, "k", clientv3.WithPrefix()); err != nil || g.Count != 30 || g.Header.Revision != 31 {
		t.Fatalf("after a restart of all: %v, %v", g, err)
	}
	if cl = again; hash(0) != before {
		t.Error("the hash after a restart differs")
	}
}

// TestOperations holds status, members, moves of the leader, and pages.
func TestOperations(t *testing.T) {
	c := newCluster(t, 3)
	ctx := c.context()
	cl := c.client()
	leader := -1
	for k := range c.members {
		st, err := cl.Status(ctx, c.endpoint(k))
		if err != nil || st.DbSize == 0 && c.configs[k].Engine == "pebble" && st.RaftIndex == 0 {
			t.Fatalf("status: %+v, %v", st, err)
		}
		if st.Leader == c.members[k].ID() {
			leader = k
		}
	}
	list, err := cl.MemberList(ctx)
	for err == nil && (len(list.Members) != 3 || list.Members[0].Name == "" || list.Members[1].Name == "" || list.Members[2].Name == "") {
		list, err = cl.MemberList(ctx) // the names come soon
	}
	if err != nil {
		t.Fatal(err)
	}
	target := (leader + 1) % 3
	if _, err := c.client(target).MoveLeader(ctx, uint64(c.members[target].ID())); err == nil || !strings.Contains(err.Error(), "not leader") {
		t.Errorf("move by a follower: %v", err)
	}
	if _, err := c.client(leader).MoveLeader(ctx, 77); err == nil || !strings.Contains(err.Error(), "bad leader transferee") {
		t.Errorf("move to a stranger: %v", err)
	}
	if _, err := c.client(leader).MoveLeader(ctx, c.members[target].ID()); err != nil {
		t.Errorf("move: %v", err)
	}
	if st, err := cl.Status(ctx, c.endpoint(target)); err != nil || st.Leader != c.members[target].ID() {
		t.Errorf("after the move: %+v, %v", st, err)
	}
	if _, err := cl.Defragment(ctx, c.endpoint(0)); err != nil {
		t.Error(err)
	}
	for path, want := range map[string]string{
		"/version": `"etcdserver":"3.7`, "/health": `{"health":"true","reason":""}`, "/livez?verbose": "[+]serializable_read ok", "/readyz": "ok",
		"/metrics": "etcd_server_has_leader 1", "/readyz/linearizable_read": "ok",
	} {
		r, err := http.Get(c.endpoint(0) + path)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		if r.StatusCode != 200 || !strings.Contains(string(b), want) {
			t.Errorf("%s: %d %.300s", path, r.StatusCode, b)
		}
	}
	// The gateway ends the requests of a stream with the body, and the client waits for events.
	r, err := http.Post(c.endpoint(0)+"/v3/watch", "application/json", strings.NewReader(`{"create_request":{"key":"dw=="}}`))
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(r.Body)
	for _, want := range []string{`"created":true`, `"value":"eA=="`} {
		if !lines.Scan() || !strings.Contains(strings.ReplaceAll(lines.Text(), " ", ""), want) {
			t.Errorf("watch as JSON: %s, want %s", lines.Text(), want)
		}
		if _, err := cl.Put(ctx, "w", "x"); err != nil {
			t.Error(err)
		}
	}
	_ = r.Body.Close()
	// Without a quorum: reads of this member's state work, others say so.
	c.stop(1)
	c.stop(2)
	if _, err := c.client(0).Get(ctx, "x", clientv3.WithSerializable()); err != nil {
		t.Error(err)
	}
	short, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := c.client(0).Put(short, "x", "y"); err == nil {
		t.Error("a put without a quorum has succeeded")
	}
	w := c.client(0).Watch(clientv3.WithRequireLeader(ctx), "x")
	if r := <-w; r.Err() == nil {
		t.Errorf("a watch that requires a leader: %+v", r)
	}
}

// TestDev starts what "millrace serve --dev" starts, on other ports, twice.
func TestDev(t *testing.T) {
	var all []int
	for _, addr := range ports(t, 6) {
		var port int
		_, p, _ := net.SplitHostPort(addr)
		_, _ = fmt.Sscan(p, &port)
		all = append(all, port)
	}
	o := DevOptions{Dir: t.TempDir(), Clients: all[:3], Peers: all[3:], Flags: []string{"--heartbeat-interval=20", "--election-timeout=200"}, Logger: slog.New(slog.DiscardHandler)}
	for round := range 2 {
		d, err := StartDev(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		cl := d.Members[2].Client()
		g, err := cl.Get(t.Context(), "k")
		if err != nil || g.Count != int64(round) {
			t.Errorf("round %d: %v, %v", round, g, err)
		}
		if _, err := cl.Put(t.Context(), "k", "v"); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := d.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
	}
	o.Peers = o.Peers[:2]
	if _, err := StartDev(t.Context(), o); err == nil || !strings.Contains(err.Error(), "each member needs one of both") {
		t.Error(err)
	}
}

// TestLongDirectory starts a member in a directory whose path is too long for the admin socket.
func TestLongDirectory(t *testing.T) {
	c := newCluster(t, 1)
	c.stop(0)
	c.configs[0].Dir = filepath.Join(t.TempDir(), strings.Repeat("x", 120))
	c.start(0)
	if _, err := c.client(0).Put(c.context(), "k", "v"); err != nil {
		t.Error(err)
	}
}

// TestTheEnd holds how a member ends: watches end so that clients continue elsewhere, a lock that waits
// does not hold the end up, and a second Close changes nothing.
func TestTheEnd(t *testing.T) {
	c := newCluster(t, 1)
	ctx := c.context()
	cl := c.client()
	if r := <-cl.Watch(ctx, "k", clientv3.WithCreatedNotify()); !r.Created {
		t.Fatalf("%+v", r)
	}
	for range 2 { // the second one waits for the first
		go func() {
			_, _ = http.Post(c.endpoint(0)+"/v3/lock/lock", "application/json", strings.NewReader(`{"name":"bA=="}`))
		}()
	}
	for {
		if g, err := cl.Get(ctx, "l/", clientv3.WithPrefix()); err != nil || g.Count == 2 {
			break
		}
	}
	m := c.members[0]
	began := time.Now()
	c.stop(0)
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("the end took %v: something was waited for", took)
	}
	if err := m.Close(ctx); err != nil {
		t.Error(err)
	}
}
