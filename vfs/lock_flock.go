//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package vfs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

type osLocks struct{}

// Lock uses flock(2). The lock belongs to the open file, so it also separates two instances inside one
// process, and the kernel drops it whenever the process dies.
//
// Lock locks the directory too. The file alone is not enough: if it is removed while it is locked, the next
// process makes a new file and locks that. Some network filesystems cannot lock a directory; there only the
// file is locked.
func (osLocks) Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f, path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	dir, err := os.Open(filepath.Dir(path))
	if err == nil {
		err = flock(dir, path)
	}
	switch {
	case err == nil:
		return heldLock{file: f, dir: dir}, nil
	case errors.Is(err, ErrLocked):
		return nil, errors.Join(err, dir.Close(), f.Close())
	case dir != nil:
		_ = dir.Close() // it was not locked
	}
	return f, nil
}

// flock locks f. The error names path.
func flock(f *os.File, path string) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return &LockedError{Path: path}
		case !errors.Is(err, syscall.EINTR):
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}

// heldLock is a lock of a file and of its directory.
type heldLock struct{ file, dir *os.File }

func (l heldLock) Close() error { return errors.Join(l.dir.Close(), l.file.Close()) }
