package wal

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// emptyLogs are disks with a log that was open once, acknowledged nothing, and has no valid record.
func emptyLogs(t *testing.T) map[string]func() *crashfs.FS {
	opened := func() (*crashfs.FS, *Log) {
		disk := crashfs.New()
		return disk, mustOpen(t, testOptions(disk, &manual{}))
	}
	return map[string]func() *crashfs.FS{
		"nothing was written": func() *crashfs.FS {
			disk, _ := opened()
			disk.Crash(crashfs.LoseAll, nil)
			return disk
		},
		"the first batch is torn": func() *crashfs.FS {
			disk, l := opened()
			mustAppend(t, l, Write{Group: 1, Entries: entries(1, 4, 1, 600)})
			disk.Crash(crashfs.LoseNothing, nil)
			if err := disk.FlipBit(l.tail.seg.path, record.SegmentHeaderBytes, 0); err != nil {
				t.Fatal(err)
			}
			disk.Remount() // or a bit that flipped would be damage
			return disk
		},
	}
}

// TestEmptyLogOpensAfterAFailedOpen lets each operation of the second Open of an empty log fail, in the
// middle if it is a write, and also cuts the power there. The log must open afterwards. Seen in seed
// 1795362665244563522 of TestCrashLab: the second Open wrote a new header over the durable one of the first
// segment. That write failed, and FENCE said that there is a log, so each later Open refused.
func TestEmptyLogOpensAfterAFailedOpen(t *testing.T) {
	enumerates(t)
	for name, prepare := range emptyLogs(t) {
		failed, images := 0, 0
		opens := func(disk *crashfs.FS, what string) {
			l, err := Open(testOptions(disk, &manual{}))
			if err != nil {
				t.Fatalf("%s, %s: %v", name, what, err)
			}
			mustAppend(t, l, add(1, 3, 1))
			mustClose(t, l)
		}
		for nth := 1; ; nth++ {
			disk, op := prepare(), 0
			var at crashfs.Op
			disk.SetHook(func(o crashfs.Op) error {
				if op++; op != nth {
					return nil
				}
				at = o
				for what, image := range disk.Images(24, uint64(nth)) {
					images++
					opens(image, fmt.Sprintf("a power cut before %v that leaves %v", o, what))
				}
				if o.Kind == crashfs.OpWrite {
					return crashfs.Short(40, syscall.EIO) // in the middle of a header
				}
				return syscall.EIO
			})
			l, err := Open(testOptions(disk, &manual{}))
			disk.SetHook(nil)
			if op < nth {
				mustClose(t, l)
				break
			}
			if err == nil {
				continue // of an operation whose error does not matter
			}
			failed++
			for what, image := range disk.Images(24, uint64(nth)) {
				images++
				opens(image, fmt.Sprintf("%v failed, and then a power cut that leaves %v", at, what))
			}
			disk.Crash(crashfs.LoseNothing, nil)
			opens(disk, fmt.Sprintf("%v failed", at))
		}
		if failed < 20 || images < 50 {
			t.Errorf("%s: %d operations failed, %d images", name, failed, images)
		}
	}
}

// TestEmptyLogNeedsNoSpace opens an empty log on a full disk: the member has to vote.
func TestEmptyLogNeedsNoSpace(t *testing.T) {
	for name, prepare := range emptyLogs(t) {
		disk := prepare()
		disk.SetCapacity(disk.UsedBytes())
		l, err := Open(testOptions(disk, &manual{}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 3, Vote: 2}})
		mustClose(t, l)
	}
}
