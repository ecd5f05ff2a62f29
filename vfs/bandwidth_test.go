package vfs_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A disk of 1 MB/s takes a second for a megabyte, whichever file it is in and however it is written. It
// writes while the program does other things, and an idle disk saves no time up.
func TestBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.WithSyncDelay(vfs.WithBandwidth(crashfs.New(), vfs.NewBandwidth(1e6)), 10*time.Millisecond)
		if err := disk.MkdirAll("/d"); err != nil {
			t.Fatal(err)
		}
		one, err := disk.Create("/d/one")
		if err != nil {
			t.Fatal(err)
		}
		two, err := disk.Create("/d/two")
		if err != nil {
			t.Fatal(err)
		}
		direct, err := disk.OpenDirect("/d/two")
		if err != nil {
			t.Fatal(err)
		}
		write := func(w interface {
			WriteAt([]byte, int64) (int, error)
		}, n int) {
			if _, err := w.WriteAt(vfs.Blocks(n), 0); err != nil {
				t.Fatal(err)
			}
		}
		sync := func(f vfs.File, want time.Duration) {
			t.Helper()
			began := time.Now()
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
			if have := time.Since(began).Round(time.Microsecond); have != want {
				t.Errorf("the sync took %v, want %v", have, want)
			}
		}
		const idle = 10 * time.Millisecond // the sync itself
		write(one, 1_000_000)
		sync(one, time.Second+idle)
		sync(one, idle) // nothing was written
		write(one, 500_000)
		write(two, 250_000)
		sync(one, 750*time.Millisecond+idle) // the disk is one
		write(one, 400_000)
		<-time.After(300 * time.Millisecond) // other work
		sync(one, 100*time.Millisecond+idle)
		<-time.After(time.Minute)
		write(one, 100_000)
		sync(two, 100*time.Millisecond+idle)
		write(direct, 125*vfs.BlockBytes)
		sync(two, 512*time.Millisecond+idle)
	})
}
