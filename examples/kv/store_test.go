package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/examples/kv/server"
	"github.com/millrace/millrace/examples/kv/server/servertest"
	"github.com/millrace/millrace/smtest"
)

// A store is what millrace expects of a state machine: deterministic, with snapshots of one moment and an
// atomic Restore.
func TestStore(t *testing.T) {
	smtest.Run(t, func() millrace.Machine[server.Command, server.Result] { return newStore().Machine() }, servertest.Commands()...)
}

// A store is the same after Snapshot and Restore, and as it was when its snapshot is damaged.
func TestSnapshot(t *testing.T) {
	s := newStore()
	var batch []millrace.Command[server.Command]
	for i, key := range []string{"b", "a", "", "b"} {
		batch = append(batch, millrace.Command[server.Command]{Index: uint64(i + 5), Value: server.Command{Op: server.Put, Key: key, Value: []byte(strings.Repeat("v", i))}})
	}
	if err := s.Apply(batch, make([]server.Result, len(batch))); err != nil {
		t.Fatal(err)
	}
	for _, from := range []*store{s, newStore()} {
		snap, err := from.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		later := []millrace.Command[server.Command]{{Index: 100, Value: server.Command{Op: server.Put, Key: "later", Value: []byte("x")}}}
		if err := from.Apply(later, make([]server.Result, 1)); err != nil {
			t.Fatal(err)
		}
		var form bytes.Buffer
		if err := snap.WriteTo(t.Context(), &form); err != nil {
			t.Fatal(err)
		}
		later = []millrace.Command[server.Command]{{Index: 101, Value: server.Command{Op: server.Delete, Key: "later"}}}
		if err := from.Apply(later, make([]server.Result, 1)); err != nil {
			t.Fatal(err)
		}
		restored := newStore()
		if err := restored.Restore(t.Context(), bytes.NewReader(form.Bytes())); err != nil || restored.totals != from.totals || len(restored.items) != len(from.items) {
			t.Errorf("%+v became %+v (%v)", from.totals, restored.totals, err)
		}
		for key, i := range from.items {
			if have := restored.items[key]; have.Version != i.Version || !bytes.Equal(have.Value, i.Value) {
				t.Errorf("%q is %+v, want %+v", key, have, i)
			}
		}
		for n := range form.Len() {
			if err := restored.Restore(t.Context(), bytes.NewReader(form.Bytes()[:n])); err == nil || restored.totals != from.totals {
				t.Errorf("%d of %d bytes of a snapshot: %v, and the state has %+v, want %+v", n, form.Len(), err, restored.totals, from.totals)
			}
		}
	}
}
