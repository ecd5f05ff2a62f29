package wal

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/vfs/crashfs"
)

// The id of a log can be read without opening it, is the same in every life, and is an error where it is not
// known. Reading it writes nothing.
func TestReadID(t *testing.T) {
	disk := crashfs.New()
	if _, err := ReadID(disk, "/log"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of no log: %v", err)
	}
	var first [16]byte
	for life := range 3 {
		l, err := Open(Options{FS: disk, Dir: "/log", Scheduler: env.Real().Scheduler, SegmentBytes: 4 << 10})
		if err != nil {
			t.Fatal(err)
		}
		if life == 0 {
			first = l.ID()
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		disk.SetHook(func(op crashfs.Op) error {
			if op.Kind != crashfs.OpRead && op.Kind != crashfs.OpOpen {
				t.Errorf("reading the id does %v %s", op.Kind, op.Name)
			}
			return nil
		})
		id, err := ReadID(disk, "/log")
		disk.SetHook(nil)
		if err != nil || id != first || id != l.ID() || id == ([16]byte{}) {
			t.Errorf("life %d: read %x (%v), the log says %x, and first said %x", life, id, err, l.ID(), first)
		}
	}
	f, err := disk.Open("/log/" + fenceName)
	if err != nil {
		t.Fatal(err)
	}
	for copies := range int64(fenceCopies) {
		if _, err := f.WriteAt([]byte{0xff}, copies*fenceBlock+70); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	if id, err := ReadID(disk, "/log"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("of a damaged FENCE: %x, %v", id, err)
	}
}
