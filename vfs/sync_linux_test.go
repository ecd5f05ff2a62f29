package vfs

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// A sync allocates nothing. Calls that share the memory of others return their own errors.
func TestSyncAllocatesNothing(t *testing.T) {
	f, err := OS().Create(filepath.Join(t.TempDir(), "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := testing.AllocsPerRun(100, func() { err = errors.Join(err, f.Sync()) }); n > 0 || err != nil {
		t.Errorf("%v allocations, %v", n, err)
	}
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 200 {
				err := f.(*osFile).control("a call", func(int) error {
					if i%2 == 0 {
						return unix.EIO
					}
					return nil
				})
				if failed := errors.Is(err, unix.EIO); failed != (i%2 == 0) {
					t.Errorf("call %d returned %v", i, err)
				}
			}
		})
	}
	all.Wait()
	f.Close()
	if err := f.Sync(); err == nil {
		t.Error("a closed file is synced")
	}
}
