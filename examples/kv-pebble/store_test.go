package main

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/kv/server"
	"github.com/millrace/millrace/examples/kv/server/servertest"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/smtest"
)

// newStore opens a store on an empty directory.
func newStore(t *testing.T) *store { return reopened(t, scratch.Dir(t)) }

func reopened(t *testing.T, dir string) *store {
	t.Helper()
	s, err := openStore(vfs.Default, dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A store is what millrace expects of a durable state machine: deterministic, with snapshots of one moment,
// an atomic Restore, and an index that a Sync makes durable.
func TestStore(t *testing.T) {
	smtest.Run(t, func() millrace.Machine[server.Command, server.Result] { return newStore(t).Machine() }, servertest.Commands()...)
}

// Several commands may have one index. They are one call, so they are on the disk all or not at all, and each
// gives its value a version of its own.
func TestCommandsOfOneEntry(t *testing.T) {
	dir := scratch.Dir(t)
	s := reopened(t, dir)
	put := func(index uint64, pos uint32, key string) millrace.Command[server.Command] {
		return millrace.Command[server.Command]{Index: index, Pos: pos, Value: server.Command{Op: server.Put, Key: key, Value: []byte(key)}}
	}
	call := func(batch ...millrace.Command[server.Command]) {
		t.Helper()
		if err := s.Apply(batch, make([]server.Result, len(batch))); err != nil {
			t.Fatal(err)
		}
	}
	call(put(4, 0, "a"), put(4, 1, "b"), put(4, 2, "a"))
	if err := s.Sync(); err != nil {
		t.Fatal(err)
	}
	call(put(5, 0, "c"), put(5, 1, "d"))
	for key, want := range map[string]uint64{"a": server.VersionOf(4, 2), "b": server.VersionOf(4, 1), "d": server.VersionOf(5, 1)} {
		if i, found, err := s.Get(key); err != nil || !found || i.Version != want {
			t.Errorf("%s: %+v, %t, %v; want version %d", key, i, found, err, want)
		}
	}
	if has, err := s.Applied(); err != nil || has != 4 {
		t.Errorf("durable through %d, %v", has, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = reopened(t, dir)
	defer s.Close()
	if has, err := s.Applied(); err != nil || has != 5 {
		t.Errorf("after a start: durable through %d, %v", has, err)
	}
	if _, found, err := s.Get("d"); err != nil || !found {
		t.Errorf("the last command of entry 5 is missing: %v", err)
	}
}
