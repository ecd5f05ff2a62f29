package main

import (
	"runtime"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/kv/server"
	"github.com/millrace/millrace/internal/scratch"
)

// A key with a time to live goes at the first command behind it, also when a store is opened again, or has a
// snapshot of another one. An add keeps the time, a put without one ends it, a put with one renews it.
func TestExpiry(t *testing.T) {
	dir := scratch.Dir(t)
	s := reopened(t, dir)
	index := uint64(0)
	do := func(at time.Duration, c server.Command, keys int) {
		t.Helper()
		index++
		batch := []millrace.Command[server.Command]{{Index: index, Time: at, Value: c}}
		if err := s.Apply(batch, make([]server.Result, 1)); err != nil || s.Totals().Keys != keys {
			t.Errorf("at %v the store has %d keys, want %d (%v)", at, s.Totals().Keys, keys, err)
		}
	}
	tick := server.Command{Op: server.Tick}
	put := func(key string) server.Command {
		return server.Command{Op: server.PutFor, Key: key, Value: []byte("1"), TTL: time.Second}
	}
	do(0, put("a"), 1)
	do(time.Second-1, tick, 1)
	do(time.Second, tick, 0)
	do(time.Second, put("a"), 1)
	do(2*time.Second-1, put("a"), 1)
	do(2*time.Second, server.Command{Op: server.Add, Key: "a", Delta: 1}, 1)
	do(2*time.Second, put("b"), 2)
	do(2*time.Second, server.Command{Op: server.Put, Key: "b"}, 2)
	if len(s.db.ends) != 1 || s.ends.Len() != 1 {
		t.Errorf("the database has ends %v, and the store %d timers; want one", s.db.ends, s.ends.Len())
	}

	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = reopened(t, dir)
	do(3*time.Second-2, tick, 2)
	snap, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	do(3*time.Second-2, put("c"), 3) // it is held, and no part of the snapshot
	do(3*time.Second-1, tick, 2)
	files := written(t, s, snap)
	do(4*time.Second, tick, 1)
	do(time.Hour, server.Command{Op: server.Delete, Key: "b"}, 0)
	if s.Totals() != (server.Totals{}) || s.ends.Len() > 0 || len(s.db.ends) > 0 {
		t.Errorf("an empty store has %+v, %d timers, and ends %v", s.Totals(), s.ends.Len(), s.db.ends)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}

	s = openIn(t, vfs.NewMem())
	defer s.abandon()
	if err := files.restore(s); err != nil {
		t.Fatal(err)
	}
	do(3*time.Second-2, tick, 2)
	do(3*time.Second-1, tick, 1)
}

// A key that was put for a while goes by itself on every member, though no client sends a change.
func TestKeysGo(t *testing.T) {
	c := newCluster(t, millrace.SnapshotPolicy{Disabled: true})
	leader := c.Leader(deadline(t))
	put := server.Command{Op: server.PutFor, Key: "a", Value: []byte("1"), TTL: 200 * time.Millisecond}
	if done, err := c.Node(leader).Propose(deadline(t), put); err != nil || done.Verdict != server.Done {
		t.Fatalf("%+v, %v", done, err)
	}
	ctx := deadline(t)
	for id := uint64(1); id <= 3; id++ {
		for c.store(id).Totals().Keys > 0 || c.get(id, "a") != "" {
			if runtime.Gosched(); ctx.Err() != nil {
				t.Fatalf("node %d still has the key", id)
			}
		}
	}
}
