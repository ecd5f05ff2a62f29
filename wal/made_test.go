package wal

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// The first Open finds no space to write into FENCE that the log exists now, because a thin volume is full.
// Then Close must write it.
func TestCloseNotesThatThereIsALog(t *testing.T) {
	disk := crashfs.New()
	opts := testOptions(disk, &manual{})
	disk.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite && strings.HasSuffix(op.Name, fenceName) {
			return syscall.ENOSPC
		}
		return nil
	})
	l := mustOpen(t, opts)
	disk.SetHook(nil)
	mustAppend(t, l, add(1, 4, 1))
	mustClose(t, l)
	if f, _, err := opts.directory().readFence(); err != nil || f.flags != flagMade|flagClosed|flagPowerCut {
		t.Errorf("after Close the fence is %+v, %v", f, err)
	}
	if err := errors.Join(disk.Remove(testDir+"/"+record.SegmentName(1)), vfs.SyncDir(disk, testDir)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(opts); !errors.Is(err, ErrCorrupt) {
		t.Errorf("the log is gone, and opens: %v", err)
	}
}
