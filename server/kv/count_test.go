package kv

import (
	"bytes"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/mvcc"
)

// counted counts the calls of an engine.
type counted struct {
	engine.Engine
	newest                    int32 // by several goroutines
	find, iterate, write, set int
}

func (c *counted) Read() engine.Reader { return countedReader{c.Engine.Read(), c} }

func (c *counted) Batch() engine.Batch { return countedBatch{c.Engine.Batch(), c} }

func (c *counted) Write(b engine.Batch) error {
	c.write++
	return c.Engine.Write(b.(countedBatch).Batch)
}

type countedReader struct {
	engine.Reader
	c *counted
}

func (r countedReader) Newest(k engine.Key) (engine.Key, []byte, bool, error) {
	atomic.AddInt32(&r.c.newest, 1)
	return r.Reader.Newest(k)
}

func (r countedReader) Find(k engine.Key) (engine.Key, bool, error) {
	r.c.find++
	return r.Reader.Find(k)
}

func (r countedReader) Iterate(lo, hi []byte) engine.Iterator {
	r.c.iterate++
	return r.Reader.Iterate(lo, hi)
}

type countedBatch struct {
	engine.Batch
	c *counted
}

func (b countedBatch) Set(k engine.Key, v []byte) {
	b.c.set++
	b.Batch.Set(k, v)
}

// puts is a batch of puts of 1 KiB, as the log brings them.
func puts(n int) []millrace.Command[[]byte] {
	batch := make([]millrace.Command[[]byte], n)
	for i := range batch {
		batch[i].Value = must(command.Put(&pb.PutRequest{Key: fmt.Appendf(nil, "key-%04d", i), Value: make([]byte, 1024)}))
	}
	return batch
}

// TestCallsOfAPut: a put of a key whose head is in the cache reads nothing from the engine. Neither does one
// of a new key while the cache has all keys. It does not have them in a store that was opened with some, or
// with too small a cache. A put sets two keys. A call of Apply writes one batch with one more.
func TestCallsOfAPut(t *testing.T) {
	m := must(build(vfs.NewMem(), Options{Engine: "memory"}))
	c := &counted{Engine: m.store.Load().Engine()}
	const n = 64
	batch, results := puts(n), make([]command.Result, n)
	pass := func(what string, newest int) {
		t.Helper()
		*c = counted{Engine: c.Engine}
		if err := m.Apply(batch, results); err != nil {
			t.Fatal(err)
		}
		if want := (counted{Engine: c.Engine, newest: int32(newest), write: 1, set: 2*n + 1}); *c != want {
			t.Errorf("%s: %d puts call %+v, want %+v", what, n, *c, want)
		}
	}
	m.store.Store(must(mvcc.Open(c, mvcc.Empty, 1<<20, -1, nil)))
	pass("new keys", 0)
	pass("keys in the cache", 0)
	m.store.Store(must(mvcc.Open(c, m.store.Load().Visible(), 1<<20, -1, nil)))
	pass("opened again", n)
	pass("keys in the cache", 0)
	m.store.Store(must(mvcc.Open(c, m.store.Load().Visible(), 0, -1, nil)))
	pass("no cache", n)
}

// broken is an engine in which a look-up panics, as Pebble does where it cannot continue.
type broken struct{ engine.Engine }

func (b broken) Read() engine.Reader { return brokenReader{b.Engine.Read()} }

type brokenReader struct{ engine.Reader }

func (r brokenReader) Newest(k engine.Key) (engine.Key, []byte, bool, error) {
	if bytes.HasPrefix(k.Prefix, []byte("kkey-")) {
		panic("a broken disk")
	}
	return r.Reader.Newest(k)
}

// TestAPanicOfALookUp: it comes out of Apply, where the host catches it. Elsewhere it would end the process.
func TestAPanicOfALookUp(t *testing.T) {
	m := must(build(vfs.NewMem(), Options{Engine: "memory"}))
	if err := m.Apply(puts(1), make([]command.Result, 1)); err != nil {
		t.Fatal(err)
	}
	m.store.Store(must(mvcc.Open(broken{m.store.Load().Engine()}, m.store.Load().Visible(), 1<<20, -1, nil)))
	defer func() {
		if v := fmt.Sprint(recover()); !strings.Contains(v, "a broken disk") || !strings.Contains(v, "lookup.go") {
			t.Errorf("Apply panics with %.300s", v)
		}
	}()
	_ = m.Apply(puts(64), make([]command.Result, 64))
}

// TestCallsOfTheSweep: it walks over the history, and looks for no version and no value. They would be on the
// disk at random places. Its batches are small.
func TestCallsOfTheSweep(t *testing.T) {
	m := must(build(vfs.NewMem(), Options{Engine: "memory"}))
	c := &counted{Engine: m.store.Load().Engine()}
	m.store.Store(must(mvcc.Open(c, mvcc.Empty, 1<<20, -1, nil)))
	const n, maxChanges = 1024, 512
	for range 2 {
		if err := m.Apply(puts(n), make([]command.Result, n)); err != nil {
			t.Fatal(err)
		}
	}
	revision, _ := m.Revision()
	compact := []millrace.Command[[]byte]{{Value: must(command.Compact(&pb.CompactionRequest{Revision: revision}))}}
	if err := m.Apply(compact, make([]command.Result, 1)); err != nil {
		t.Fatal(err)
	}
	*c = counted{Engine: c.Engine}
	for more := true; more; {
		more = must(m.store.Load().Sweep())
	}
	if c.newest != 0 || c.find != 0 || c.write < 2*n/maxChanges || c.iterate != c.write {
		t.Errorf("the sweep of %d changes calls %+v, want an iterator and a batch for %d changes, and no more", 2*n, *c, maxChanges)
	}
	for _, space := range []byte{'k', 'r'} {
		it, left := c.Engine.Read().Iterate([]byte{space}, []byte{space + 1}), 0
		for it.Next() {
			left++
		}
		if err := it.Close(); left != n || err != nil {
			t.Errorf("the sweep has left %d entries of space %c, want %d; %v", left, space, n, err)
		}
	}
}

// TestSweepPauses: the sweep takes a tenth of the time, and half if the next compaction has come already.
func TestSweepPauses(t *testing.T) {
	m := must(build(vfs.NewMem(), Options{Engine: "memory"}))
	s := m.store.Load()
	for _, c := range []struct {
		lags bool
		want time.Duration
	}{{false, 9 * time.Second}, {true, time.Second}} {
		const n = 600
		if have := sweepPause(time.Second, c.lags); have != c.want {
			t.Errorf("behind a batch of a second, lagging %v, the sweep waits %v, want %v", c.lags, have, c.want)
		}
		if s.SweepLags() {
			t.Error("a sweep that has not begun lags")
		}
		for range 2 {
			if err := m.Apply(puts(n), make([]command.Result, n)); err != nil {
				t.Fatal(err)
			}
		}
		compactHere := func() {
			revision, _ := m.Revision()
			if err := m.Apply([]millrace.Command[[]byte]{{Value: must(command.Compact(&pb.CompactionRequest{Revision: revision}))}}, make([]command.Result, 1)); err != nil {
				t.Fatal(err)
			}
		}
		compactHere()
		_ = must(s.Sweep())
		if c.lags {
			if err := m.Apply(puts(n), make([]command.Result, n)); err != nil {
				t.Fatal(err)
			}
			compactHere()
		}
		if have := s.SweepLags(); have != c.lags {
			t.Errorf("the sweep lags: %v, want %v", have, c.lags)
		}
		for must(s.Sweep()) {
		}
	}
}

// TestAllocationsOfAPut: on a member that has no caller, and on the one that answers.
func TestAllocationsOfAPut(t *testing.T) {
	m := must(build(vfs.NewMem(), Options{Dir: "state", FeedBytes: 1 << 20, BlockCacheBytes: 1 << 20}))
	defer m.Close()
	const n = 64
	batch, results := puts(n), make([]command.Result, n)
	for _, c := range []struct {
		awaited, watched bool
		most             float64
	}{{false, false, 8}, {false, true, 12}, {true, true, 16}} {
		m.feed.SetWatched(c.watched)
		for i := range batch {
			batch[i].Awaited = c.awaited
		}
		per := testing.AllocsPerRun(50, func() {
			if err := m.Apply(batch, results); err != nil {
				t.Fatal(err)
			}
		}) / n
		t.Logf("a put, awaited %v, watched %v: %.1f allocations", c.awaited, c.watched, per)
		if per > c.most {
			t.Errorf("a put, awaited %v, watched %v, allocates %.1f times, at most %.0f", c.awaited, c.watched, per, c.most)
		}
	}
}
