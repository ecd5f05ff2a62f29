package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// Discard removes the segments and spares of the log in dir, durably. It is for a log without anything to
// rely on, so the directory can be given to another host. FENCE stays, so that the generation continues; it
// says from then on that no log was made yet. A log that is open is refused with vfs.ErrLocked.
func Discard(fsys vfs.FS, dir string) (err error) {
	lock, err := fsys.Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	d := directory{fs: fsys, path: dir}
	f, from, err := d.readFence()
	if err != nil {
		return err
	}
	if f.version > 0 { // before the segments: they must not be missed
		f.flags &^= flagMade | flagClosed
		f.end = record.End{}
		if err := d.writeFence(f, from); err != nil {
			return err
		}
	}
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return err
	}
	if err := d.removeDraft(names); err != nil { // or it would be missed in the place of its segment
		return err
	}
	for _, name := range slices.Backward(names) { // the highest segment first: what is left has no gap
		if _, ok := record.ParseSegmentName(name); !ok && !isSpareName(name) {
			continue
		}
		if err := fsys.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("wal: %w", err)
		}
		if err := vfs.SyncDir(fsys, dir); err != nil {
			return err
		}
	}
	return nil
}
