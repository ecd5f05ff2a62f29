package pebble_test

import (
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/engine/pebble"
)

// A full disk fails the engine for good, also when there is space again, and the sentence says what to do.
func TestFullDiskSaysWhatToDo(t *testing.T) {
	var full atomic.Bool
	fs := limited(&full, "")
	e, err := pebble.Open("db", pebble.Options{FS: fs, BlockCacheBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	writeOne(t, e)
	full.Store(true)
	if e.Flush() == nil {
		t.Error("a flush to a full disk reports no error")
	}
	full.Store(false)
	err = e.Write(e.Batch())
	if err == nil || !strings.Contains(err.Error(), "Make space on the disk, then restart it") {
		t.Errorf("a write after a full disk says %v", err)
	}
	_ = e.Close()
}

// Fatal gets the same sentence when a full disk refuses the list of files: Pebble cannot continue.
func TestFullDiskOfTheManifestIsFatal(t *testing.T) {
	var full atomic.Bool
	fs := limited(&full, "MANIFEST")
	told := make(chan error, 1)
	e, err := pebble.Open("db", pebble.Options{FS: fs, BlockCacheBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) {
		told <- err
		select {} // as a process that ends: Pebble holds locks, so the engine cannot be closed either
	}})
	if err != nil {
		t.Fatal(err)
	}
	writeOne(t, e)
	full.Store(true)
	go func() { _ = e.Flush() }()
	if err := <-told; !strings.Contains(err.Error(), "Make space on the disk, then restart it") || !strings.Contains(err.Error(), "MANIFEST") {
		t.Errorf("Fatal is told %v", err)
	}
}

// limited is a disk in memory that, while it is full, has no space for files with a part in their names.
func limited(full *atomic.Bool, part string) vfs.FS {
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.Contains(op.Path, part) {
			return syscall.ENOSPC
		}
		return nil
	}))
}

func writeOne(t *testing.T, e *pebble.Engine) {
	t.Helper()
	b := e.Batch()
	b.Set(engine.Key{Prefix: []byte("ka"), Main: 1}, []byte("v"))
	if err := e.Write(b); err != nil {
		t.Fatal(err)
	}
}
