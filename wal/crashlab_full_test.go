package wal_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// TestFullDiskOfEverySize fills disks of 1 to 12 blocks. After a power cut on the full disk, the log must
// show everything that was acknowledged. When there is space again, it must accept appends.
func TestFullDiskOfEverySize(t *testing.T) {
	config := labConfig{segmentBytes: 4096}
	opened := 0
	for blocks := int64(1); blocks <= 12; blocks++ {
		disk := crashfs.New()
		disk.SetCapacity(blocks * 4096)
		log, err := openLabLog(disk, labDir, &labScheduler{}, config, nil)
		if errors.Is(err, syscall.ENOSPC) {
			continue // too small for a log
		}
		if err != nil {
			t.Fatal(err)
		}
		opened++
		var last uint64
		add := func() error {
			w := labWrite{group: 1, entries: []raftpb.Entry{{Index: last + 1, Term: 1, Data: make([]byte, 700)}}}
			if err := appendLab(log, []labWrite{w}); err != nil {
				return err
			}
			if err := log.Sync(); err != nil {
				return err
			}
			last++
			return nil
		}
		for err == nil && last < 1000 {
			err = add()
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d blocks are full after %d entries, and the log says: %v", blocks, last, err)
		}
		disk.Crash(crashfs.LoseAll, nil)
		if log, err = openLabLog(disk, labDir, &labScheduler{}, config, nil); err == nil {
			if n := log.Group(1).LastIndex(); n != last {
				t.Errorf("%d blocks are full: the log ends at %d, want %d", blocks, n, last)
			}
		} else if labOpensFull || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%d blocks hold %d entries and are full, and the log does not open: %v", blocks, last, err)
		}
		disk.Crash(crashfs.LoseAll, nil)
		disk.SetCapacity(1 << 20)
		if log, err = openLabLog(disk, labDir, &labScheduler{}, config, nil); err != nil {
			t.Fatal(err)
		}
		if n := log.Group(1).LastIndex(); n != last {
			t.Errorf("there is space again: the log ends at %d, want %d", n, last)
		}
		for range 20 {
			if err := add(); err != nil {
				t.Fatalf("there is space again, and the log says: %v", err)
			}
		}
	}
	if opened < 6 {
		t.Errorf("%d of 12 disks held a log", opened)
	}
}
