package vfs

import (
	"errors"
	"io"
)

// LockToRead takes the same lock as Lock, for a process that changes nothing while it holds the lock. A
// tool reads a directory with it, whose process must not start meanwhile. It makes no file and needs no
// right to write, so it works on a read-only volume and for another user. It returns a *LockedError if the
// lock is held.
func LockToRead(fsys FS, path string) (io.Closer, error) {
	switch f := fsys.(type) {
	case interface {
		lockToRead(path string) (io.Closer, error)
	}:
		lock, err := f.lockToRead(path)
		if err == nil || errors.Is(err, ErrLocked) {
			return lock, err
		}
		lock, further := fsys.Lock(path) // a network filesystem locks what is open for writing
		if further != nil && !errors.Is(further, ErrLocked) {
			return nil, err
		}
		return lock, further
	case wrapper:
		return LockToRead(f.below(), path)
	}
	return fsys.Lock(path)
}
