package lab

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// WorkDir is a new directory in which one run puts all its files. Remove deletes it.
type WorkDir struct {
	Path   string
	Parent string // absolute; the directory that the user chose, or the default
}

const (
	// ReservedBytes stay free: the harness stops before the disk is full, because a full disk hurts others too.
	ReservedBytes = 128 << 20

	diskWatchInterval = 200 * time.Millisecond
)

// MakeWorkDir makes the working directory of a run under parent, after a check that needBytes are free there.
// An empty parent means the temporary directory, or the current one if the temporary one is in memory, where
// an fsync proves nothing. The error names the field Dir and wraps ErrCannot.
func MakeWorkDir(parent string, needBytes uint64) (WorkDir, error) {
	if parent == "" {
		parent = os.TempDir()
		if filesystemOf(parent) == Tmpfs {
			parent = "."
		}
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return WorkDir{}, err
	}
	info, err := os.Stat(parent)
	if err != nil {
		return WorkDir{}, Cannot("Dir", "cannot use %s: %v", parent, Cause(err))
	}
	if !info.IsDir() {
		return WorkDir{}, Cannot("Dir", "%s is not a directory", parent)
	}
	if free, ok := freeBytes(parent); ok && free < needBytes {
		return WorkDir{}, Cannot("Dir", "%s has %d MiB free and the bench needs at least %d MiB", parent, free>>20, needBytes>>20)
	}
	path, err := os.MkdirTemp(parent, ".millrace-bench-")
	if err != nil {
		return WorkDir{}, Cannot("Dir", "cannot write to %s: %v", parent, Cause(err))
	}
	return WorkDir{Path: path, Parent: parent}, nil
}

// InWorkDir makes a working directory (MakeWorkDir), calls measure with it under its guard (Guard), and
// removes it, whatever happened.
func InWorkDir(ctx context.Context, parent string, needBytes uint64, measure func(context.Context, WorkDir) error) (interrupted bool, err error) {
	work, err := MakeWorkDir(parent, needBytes)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, work.Remove()) }()
	return work.Guard(ctx, func(ctx context.Context) error { return measure(ctx, work) })
}

// Remove deletes the directory and everything in it.
func (w WorkDir) Remove() error { return os.RemoveAll(w.Path) }

// InFreshDir calls f with a new directory below w, and removes that directory afterwards, whatever happened.
func InFreshDir[T any](w WorkDir, f func(dir string) (T, error)) (_ T, err error) {
	dir, err := os.MkdirTemp(w.Path, "point-")
	if err != nil {
		var none T
		return none, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return f(dir)
}

var errDiskFull = errors.New("the disk is nearly full")

// Guard calls measure with a context that also ends when the disk of w is about to fill up.
//
// If ctx itself ended, interrupted is true and err is ctx's cause, whatever the interrupt broke on its way:
// the points measured so far are good. A mismatch is never taken for an interrupt. Any other error is final;
// a full disk, however it showed, becomes a sentence that wraps ErrCannot.
func (w WorkDir) Guard(ctx context.Context, measure func(context.Context) error) (interrupted bool, err error) {
	watched, stopWatching := watchDisk(ctx, w.Path)
	err = measure(watched)
	if err != nil && context.Cause(watched) == errDiskFull {
		err = errDiskFull
	}
	stopWatching()
	if err != nil && ctx.Err() != nil && !errors.Is(err, ErrMismatch) {
		return true, context.Cause(ctx)
	}
	return false, w.Explain(err)
}

// Explain turns the error of a full disk into a sentence that says what to do, and leaves other errors alone.
func (w WorkDir) Explain(err error) error {
	if errors.Is(err, errDiskFull) || errors.Is(err, syscall.ENOSPC) {
		return Cannot("Dir", "the disk under %s is full: free some space, measure for a shorter time, or choose another directory", w.Parent)
	}
	return err
}

// watchDisk returns a context that ends with errDiskFull when the filesystem of dir is about to fill up. The
// returned function stops the watch.
func watchDisk(ctx context.Context, dir string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(diskWatchInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if free, ok := freeBytes(dir); ok && free < ReservedBytes {
				cancel(errDiskFull)
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		wg.Wait()
	}
}
