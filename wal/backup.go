package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/millrace/millrace/vfs"
)

// What a repair gives up or changes stays beside the log, as NAME.before-repair, or .before-repair-2 and so on where an
// earlier repair has taken the name. The log does not know such names, and never touches them; somebody who has made sure
// that the cluster is well removes them.
//
// Invariant: a name of this kind never stands over a part of a copy. It is a copy under another name first, and renamed
// when that is durable.

const (
	backupMark = ".before-repair"
	draftMark  = ".before-repair-draft"
	maxBackups = 100
	copyBytes  = 1 << 20
)

// backupName is the n-th name, from 1, for what was name.
func backupName(name string, n int) string {
	if n == 1 {
		return name + backupMark
	}
	return fmt.Sprintf("%s%s-%d", name, backupMark, n)
}

// copyAside makes a durable copy of a file, unless one of the same contents is there already, and returns its name.
func copyAside(disk vfs.FS, dir, name string) (string, error) {
	from, err := disk.Open(filepath.Join(dir, name))
	if err != nil {
		return "", err
	}
	to, done, err := freeName(disk, dir, name, from)
	if err == nil && !done {
		draft := filepath.Join(dir, name+draftMark)
		if err = copyTo(disk, from, draft); err == nil {
			err = disk.Rename(draft, filepath.Join(dir, to))
		}
		if err == nil {
			err = disk.SyncDir(dir)
		}
	}
	return to, errors.Join(err, from.Close())
}

// copyTo makes a durable file of what is in from. If there is no room it leaves nothing.
func copyTo(disk vfs.FS, from vfs.File, draft string) (err error) {
	if err := disk.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	size, err := from.Size()
	if err != nil {
		return err
	}
	to, err := disk.Create(draft)
	if err != nil {
		return err
	}
	err = to.Preallocate(0, size)
	buf := make([]byte, copyBytes)
	for off := int64(0); err == nil && off < size; off += copyBytes {
		part := buf[:min(copyBytes, size-off)]
		if _, err = from.ReadAt(part, off); err == nil {
			_, err = to.WriteAt(part, off)
		}
	}
	if err == nil {
		err = to.Sync()
	}
	err = errors.Join(err, to.Close())
	if isFull(err) {
		err = fmt.Errorf("no room for a copy of %d bytes; free some, or move the whole directory to a larger disk, and repair it there: %w", size, err)
	}
	if err != nil {
		err = errors.Join(err, disk.Remove(draft))
	}
	return err
}

// setAside renames a file, durably, and returns its new name.
func setAside(disk vfs.FS, dir, name string) (string, error) {
	to, _, err := freeName(disk, dir, name, nil)
	if err != nil {
		return "", err
	}
	if err := disk.Rename(filepath.Join(dir, name), filepath.Join(dir, to)); err != nil {
		return "", err
	}
	return to, disk.SyncDir(dir)
}

// freeName returns the first name for a backup that is free, or that holds the same as a file (done).
func freeName(disk vfs.FS, dir, name string, same vfs.File) (to string, done bool, err error) {
	for n := 1; n <= maxBackups; n++ {
		to = backupName(name, n)
		f, err := disk.Open(filepath.Join(dir, to))
		if errors.Is(err, fs.ErrNotExist) {
			return to, false, nil
		}
		if err != nil {
			return "", false, err
		}
		if same != nil {
			done, err = sameContents(f, same)
		}
		if err := errors.Join(err, f.Close()); err != nil || done {
			return to, done, err
		}
	}
	return "", false, fmt.Errorf("%s has %d backups already; look through them and remove some", name, maxBackups)
}

func sameContents(a, b vfs.File) (bool, error) {
	size, err := a.Size()
	other, err2 := b.Size()
	if err := errors.Join(err, err2); err != nil || size != other {
		return false, err
	}
	x, y := make([]byte, copyBytes), make([]byte, copyBytes)
	for off := int64(0); off < size; off += copyBytes {
		n := min(copyBytes, size-off)
		_, err := a.ReadAt(x[:n], off)
		_, err2 := b.ReadAt(y[:n], off)
		if err := errors.Join(err, err2); err != nil || !bytes.Equal(x[:n], y[:n]) {
			return false, err
		}
	}
	return true, nil
}
