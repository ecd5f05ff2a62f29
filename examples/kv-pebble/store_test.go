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
