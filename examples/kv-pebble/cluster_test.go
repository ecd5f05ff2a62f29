package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/kv/server"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/millracetest"
)

// counted is a store that counts the commands of one life.
type counted struct {
	*store
	mu           sync.Mutex
	first, count uint64
}

func (c *counted) Apply(batch []millrace.Command[server.Command], results []server.Result) error {
	c.mu.Lock()
	if c.count == 0 && len(batch) > 0 {
		c.first = batch[0].Index
	}
	c.count += uint64(len(batch))
	c.mu.Unlock()
	return c.store.Apply(batch, results)
}

// machineOf is Machine for a counted store.
func machineOf(c *counted) millrace.Machine[server.Command, server.Result] {
	return millrace.Durable(c, millrace.Binary[server.Command]()).Results(millrace.Binary[server.Result]()).Digest(c.digest).
		Timers(&c.ends, server.Command{Op: server.Tick}).Version("1")
}

// applied returns the index of the first command of this life, and how many there were.
func (c *counted) applied() (first, count uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first, c.count
}

// cluster is three stores, each below the directory of its node.
type cluster struct {
	*millracetest.Cluster[server.Command, server.Result]
	t   *testing.T
	dir string
	mu  sync.Mutex
	of  map[uint64]*counted
}

func newCluster(t *testing.T, p millrace.SnapshotPolicy) *cluster {
	c := &cluster{t: t, dir: scratch.Dir(t), of: map[uint64]*counted{}}
	t.Cleanup(func() { // after the nodes are closed
		for _, s := range c.of {
			s.abandon()
		}
	})
	c.Cluster = millracetest.New(t, 3, c.open, millracetest.OnDisk(c.dir), millracetest.WithGroup(millrace.GroupConfig{Snapshots: p}), millracetest.WithHost(rareElections))
	return c
}

// rareElections gives busy members time.
func rareElections(c *host.Config) {
	c.HeartbeatInterval, c.ElectionTimeout = 100*time.Millisecond, time.Second
}

// open opens the store of a node. What an earlier life has left unsynced is lost, as if that had been killed.
func (c *cluster) open(id uint64) millrace.Machine[server.Command, server.Result] {
	c.mu.Lock()
	defer c.mu.Unlock()
	if before := c.of[id]; before != nil {
		before.abandon()
	}
	s, err := openStore(vfs.Default, c.stateDir(id))
	if err != nil {
		c.t.Error(err)
		return millrace.Machine[server.Command, server.Result]{}
	}
	c.of[id] = &counted{store: s}
	return machineOf(c.of[id])
}

func (c *cluster) stateDir(id uint64) string {
	return filepath.Join(c.dir, fmt.Sprintf("node-%d", id), "data", "state")
}

// store returns the store of a node.
func (c *cluster) store(id uint64) *counted {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.of[id]
}

// abandon closes a store, and flushes nothing.
func (s *store) abandon() {
	if s.db != nil {
		_ = s.db.close()
		s.db = nil
	}
}

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func (c *cluster) put(id uint64, key string, value []byte) millrace.Receipt {
	c.t.Helper()
	var r millrace.Receipt
	done, err := c.Node(id).Propose(deadline(c.t), server.Command{Op: server.Put, Key: key, Value: value}, millrace.WithReceipt(&r))
	if err != nil || done.Verdict != server.Done {
		c.t.Fatalf("put %s on node %d: %+v, %v", key, id, done, err)
	}
	return r
}

// get reads a key on a node, as of now.
func (c *cluster) get(id uint64, key string) (value string) {
	c.t.Helper()
	err := c.Node(id).View(deadline(c.t), millrace.Linearizable, func(millrace.ReadAt) error {
		i, _, err := c.store(id).Get(key)
		value = string(i.Value)
		return err
	})
	if err != nil {
		c.t.Fatalf("get %s on node %d: %v", key, id, err)
	}
	return value
}

// take takes a snapshot on a node, and waits until its log has forgotten an entry before it.
func (c *cluster) take(id, forgotten uint64) millrace.SnapshotInfo {
	c.t.Helper()
	ctx := deadline(c.t)
	info, err := c.Node(id).TakeSnapshot(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	for c.Node(id).Status().FirstIndex <= forgotten {
		if runtime.Gosched(); ctx.Err() != nil {
			c.t.Fatalf("behind snapshot %+v the log of node %d is not compacted: %+v", info, id, c.Node(id).Status())
		}
	}
	return info
}

// waitInstalled waits until a node has installed a snapshot.
func (c *cluster) waitInstalled(id uint64, want millrace.SnapshotInfo) {
	c.t.Helper()
	ctx := deadline(c.t)
	for {
		latest, _ := c.Node(id).LatestSnapshot()
		if latest == want {
			return
		}
		if runtime.Gosched(); ctx.Err() != nil {
			c.t.Fatalf("node %d has snapshot %+v, want %+v", id, latest, want)
		}
	}
}

// compact puts the tables in order, as compactions do in time.
func (s *store) compact(ctx context.Context) error {
	if err := s.Sync(); err != nil {
		return err
	}
	return s.db.Compact(ctx, []byte("a"), []byte("z"), false)
}

// A member that was stopped in good order gets no command again, and one that was killed gets those that its
// database had not flushed.
func TestNothingHeldIsAppliedAgain(t *testing.T) {
	c := newCluster(t, millrace.SnapshotPolicy{Disabled: true})
	leader := c.Leader(deadline(t))
	for i := range 200 {
		c.put(leader, fmt.Sprint("key-", i%50), fmt.Append(nil, "value-", i))
	}
	id := leader%3 + 1
	c.get(id, "key-0") // it has applied everything
	if _, n := c.store(id).applied(); n != 200 {
		t.Fatalf("node %d has applied %d commands, want 200", id, n)
	}

	c.Stop(id)
	if err := c.store(id).Sync(); err != nil { // as Close does
		t.Fatal(err)
	}
	c.Restart(id)
	if have := c.get(id, "key-49"); have != "value-199" {
		t.Errorf("after a stop key-49 is %q, want value-199", have)
	}
	if first, n := c.store(id).applied(); n != 0 {
		t.Errorf("after a stop %d commands were applied again, from entry %d on", n, first)
	}

	held, err := c.store(id).Applied()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		c.put(leader, fmt.Sprint("key-", i), fmt.Append(nil, "later-", i))
	}
	c.get(id, "key-0")
	c.Kill(id)
	c.Restart(id)
	if have := c.get(id, "key-49"); have != "later-49" {
		t.Errorf("after a kill key-49 is %q, want later-49", have)
	}
	if first, n := c.store(id).applied(); n != 50 || first <= held {
		t.Errorf("after a kill %d commands were applied again, from entry %d on, want the 50 after entry %d", n, first, held)
	}
	for other := uint64(1); other <= 3; other++ {
		c.get(other, "key-0")
		if have, want := c.store(other).Totals(), c.store(leader).Totals(); have != want {
			t.Errorf("node %d has %+v, want %+v", other, have, want)
		}
	}
}

// fill puts keys with values that cannot be compressed.
func (c *cluster) fill(id uint64, lo, hi int, seed uint64) {
	c.t.Helper()
	rng := rand.NewChaCha8([32]byte{byte(seed)})
	ctx := deadline(c.t)
	var waiting []*millrace.Pending[server.Result]
	wait := func() {
		for _, p := range waiting {
			if r, _, err := p.Wait(ctx); err != nil || r.Verdict != server.Done {
				c.t.Fatalf("%+v, %v", r, err)
			}
		}
		waiting = nil
	}
	for k := lo; k < hi; k++ {
		value := make([]byte, fillBytes)
		_, _ = rng.Read(value)
		p, err := c.Node(id).Submit(server.Command{Op: server.Put, Key: fmt.Sprintf("%08d", k), Value: value})
		if err != nil {
			c.t.Fatal(err)
		}
		if waiting = append(waiting, p); len(waiting) == 8 { // the log forgets whole batches
			wait()
		}
	}
	wait()
}

const fillBytes = 8 << 10

// tables returns the tables in a directory, by name.
func tables(t *testing.T, pattern string) (found []os.FileInfo) {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		info, err := os.Stat(name)
		if errors.Is(err, os.ErrNotExist) { // a compaction has removed it
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, info)
	}
	return found
}

// shared returns how many bytes of a are the same files in b.
func shared(a, b []os.FileInfo) (bytes int64) {
	for _, x := range a {
		for _, y := range b {
			if os.SameFile(x, y) {
				bytes += x.Size()
				break
			}
		}
	}
	return bytes
}

// A member beyond the log is restored from the tables of another one, which are linked. When 1 % of the keys
// have changed, the next snapshot has the other tables of the first by links, and a member that has the first
// receives only what it lacks.
func TestUnchangedTablesAreLinked(t *testing.T) {
	const keys = 2000 // 16 MiB
	c := newCluster(t, millrace.SnapshotPolicy{Disabled: true, KeepBytes: 1, LogBytes: 4})
	leader := c.Leader(deadline(t))
	away := leader%3 + 1
	c.put(leader, "first", []byte("1"))
	c.get(away, "first")
	parts := func(id uint64, info millrace.SnapshotInfo) []os.FileInfo {
		return tables(t, filepath.Join(c.dir, fmt.Sprintf("node-%d", id), "data", "groups", "1", "snapshots", fmt.Sprintf("%016x-*", info.Index), "part-*"))
	}
	received := func() uint64 { return c.Node(away).Host().Metrics().Transfers.BytesReceived }

	c.Kill(away)
	c.fill(leader, 0, keys, 1)
	if err := c.store(leader).compact(deadline(t)); err != nil { // what a compaction rewrites is new
		t.Fatal(err)
	}
	first := c.take(leader, 100)
	c.Restart(away)
	if have := c.get(away, "first"); have != "1" {
		t.Errorf("the key first is %q, want 1", have)
	}
	c.waitInstalled(away, first)
	whole := received()
	if whole < keys*fillBytes {
		t.Errorf("node %d has received %d bytes, want all of %d", away, whole, first.Bytes)
	}
	state := tables(t, filepath.Join(c.stateDir(away), "db-*", "*.sst"))
	if n := shared(parts(away, first), state); n < keys*fillBytes*9/10 {
		t.Errorf("%d bytes of the snapshot are files of the database of node %d, want nearly all of %d", n, away, first.Bytes)
	}
	if _, n := c.store(away).applied(); n > 10 {
		t.Errorf("node %d has applied %d commands that the snapshot has", away, n)
	}

	c.Kill(away)
	c.fill(leader, keys/2, keys/2+keys/100, 2)
	before := parts(leader, first)
	second := c.take(leader, first.Index+1)
	after := parts(leader, second)
	n := shared(after, before)
	t.Logf("the first snapshot has %d bytes, the second one %d, of which %d are files of the first", first.Bytes, second.Bytes, n)
	if n < second.Bytes*3/4 {
		t.Errorf("of the %d bytes of the second snapshot %d are files of the first one, want at least three quarters", second.Bytes, n)
	}
	c.Restart(away)
	for _, key := range []string{fmt.Sprintf("%08d", keys/2), fmt.Sprintf("%08d", keys-1)} {
		if have, want := c.get(away, key), c.get(leader, key); have != want {
			t.Errorf("key %s differs on node %d", key, away)
		}
	}
	c.waitInstalled(away, second)
	t.Logf("node %d has received %d bytes for the first snapshot, and %d for the second", away, whole, received())
	if got := received(); got > whole/4 {
		t.Errorf("node %d has received %d bytes, and %d of the first snapshot; want less than a quarter", away, got, whole)
	}
	if have, want := c.store(away).Totals(), c.store(leader).Totals(); have != want {
		t.Errorf("node %d has %+v, want %+v", away, have, want)
	}
}

// openAlone opens a node alone over a store.
func openAlone(t *testing.T, dir string, s *counted) (*millrace.Node[server.Command, server.Result], error) {
	t.Helper()
	return millrace.Open(t.Context(), millrace.Config{
		ID: 1, Dir: filepath.Join(dir, "host"), Members: map[uint64]string{1: "127.0.0.1:0"}, MaxCommandBytes: 64 << 10,
		Snapshots: millrace.SnapshotPolicy{Disabled: true, LogBytes: 4, KeepBytes: 1},
	}, machineOf(s))
}

// A state that is ahead of the log is refused with a sentence; one that is behind a snapshot is restored; one
// that is between them is kept.
func TestStateBesideItsLog(t *testing.T) {
	dir := scratch.Dir(t)
	life := func(state string, want string, change func(n *millrace.Node[server.Command, server.Result])) (s *counted) {
		t.Helper()
		s = &counted{store: reopened(t, filepath.Join(dir, state))}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		n, err := openAlone(t, dir, s)
		if want != "" {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("with %s the node opens with %v, want %q", state, err, want)
			} else {
				t.Log(err)
			}
			return s
		}
		if err != nil {
			t.Fatal(err)
		}
		change(n)
		if err := n.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		return s
	}
	put := func(n *millrace.Node[server.Command, server.Result], lo, hi int) {
		for i := range hi - lo {
			if _, err := n.Propose(t.Context(), server.Command{Op: server.Put, Key: fmt.Sprint(lo + i), Value: []byte{1}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	life("a", "", func(n *millrace.Node[server.Command, server.Result]) {
		put(n, 0, 10)
		if _, err := n.TakeSnapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
		put(n, 10, 20)
	})
	check := func(s *counted, keys int, commands uint64) {
		t.Helper()
		if _, count := s.applied(); s.Totals().Keys != keys || count != commands {
			t.Errorf("the state has %d keys after %d commands, want %d after %d", s.Totals().Keys, count, keys, commands)
		}
	}
	nothing := func(n *millrace.Node[server.Command, server.Result]) { // but to apply what is there
		if err := n.View(t.Context(), millrace.Linearizable, func(millrace.ReadAt) error { return nil }); err != nil {
			t.Error(err)
		}
	}
	check(life("a", "", nothing), 20, 0)
	check(life("empty", "", nothing), 20, 10) // it has the snapshot, and the log behind it
	if err := os.RemoveAll(filepath.Join(dir, "host")); err != nil {
		t.Fatal(err)
	}
	life("a", "one of the two was restored or replaced", nil)
}
