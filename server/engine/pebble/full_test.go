package pebble_test

import (
	"errors"
	"log/slog"
	"math/rand/v2"
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

// TestFullDiskOfAFileOfValues: a full disk may refuse any part of a file of values. The engine fails with the
// sentence. At the end of the file Fatal gets it, because Pebble cannot continue.
func TestFullDiskOfAFileOfValues(t *testing.T) {
	for _, row := range []struct {
		name    string
		bytes   int // of a value
		refused errorfs.OpKind
		isFatal bool
	}{
		{"the file is not made", 1000, errorfs.OpCreate, false},
		{"a part of it is not written", 1 << 20, errorfs.OpFileWrite, false},
		{"its end is not written", 1000, errorfs.OpFileWrite, true},
		{"it is not synced", 1000, errorfs.OpFileSync, true},
	} {
		var full atomic.Bool
		fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			isIt := op.Kind == row.refused || row.refused == errorfs.OpFileSync && (op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo)
			if full.Load() && isIt && strings.HasSuffix(op.Path, ".blob") {
				return syscall.ENOSPC
			}
			return nil
		}))
		told := make(chan error, 1)
		e, err := pebble.Open("db", pebble.Options{FS: fs, BlockCacheBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler), Fatal: func(err error) {
			told <- err
			select {} // as a process that ends
		}})
		if err != nil {
			t.Fatal(err)
		}
		writeBytes(t, e, noise(row.bytes))
		full.Store(true)
		failed := make(chan error, 1)
		go func() { failed <- e.Flush() }()
		select {
		case err = <-told:
			if !row.isFatal {
				t.Errorf("%s: Fatal is told %v", row.name, err)
			}
		case err = <-failed:
			if full.Store(false); row.isFatal {
				t.Errorf("%s: a flush says %v", row.name, err)
			}
			_ = e.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "Make space on the disk, then restart it") {
			t.Errorf("%s: have %v", row.name, err)
		}
	}
}

// A full disk also fails an engine that writes a file of values again, to be rid of its garbage. It does not
// try that again without an end.
func TestFullDiskOfARewrite(t *testing.T) {
	var full atomic.Bool
	var tries atomic.Int64
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".blob") {
			tries.Add(1)
			return syscall.ENOSPC
		}
		return nil
	}))
	e, err := pebble.Open("db", pebble.Options{FS: fs, BlockCacheBytes: 1 << 20, RewriteAge: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	write := func(of func(engine.Batch, engine.Key)) {
		b := e.Batch()
		defer b.Close()
		for i := range 100 {
			of(b, engine.Key{Prefix: []byte{'k', byte(i)}, Main: 1})
		}
		err = errors.Join(e.Write(b), e.Flush())
	}
	value := noise(1000)
	write(func(b engine.Batch, k engine.Key) { b.Set(k, value) })
	full.Store(true)
	write(func(b engine.Batch, k engine.Key) {
		if k.Prefix[1]%2 == 0 {
			b.Delete(k)
		}
	})
	err = errors.Join(err, e.Compact()) // it moves keys alone
	for i := 0; err == nil; i++ {       // each flush may begin the rewrite
		if i == 10_000 {
			t.Fatalf("no error after %d tries to write a file of values again", tries.Load())
		}
		b := e.Batch()
		b.Set(engine.Key{Prefix: []byte("ka"), Main: 1}, []byte("v"))
		err = errors.Join(e.Write(b), e.Flush())
		b.Close()
	}
	if !strings.Contains(err.Error(), "Make space on the disk, then restart it") {
		t.Errorf("a write says %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if n := tries.Load(); n > 2 {
		t.Errorf("%d tries to write a file of values again", n)
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

// noise returns bytes that cannot be compressed.
func noise(n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func writeOne(t *testing.T, e *pebble.Engine) {
	t.Helper()
	writeBytes(t, e, []byte("v"))
}

func writeBytes(t *testing.T, e *pebble.Engine, value []byte) {
	t.Helper()
	b := e.Batch()
	b.Set(engine.Key{Prefix: []byte("ka"), Main: 1}, value)
	if err := e.Write(b); err != nil {
		t.Fatal(err)
	}
}
