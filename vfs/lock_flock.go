//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package vfs

import (
	"errors"
	"io"
	"io/fs"
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
	switch {
	case errors.Is(err, fs.ErrPermission): // a directory that may be entered and not read
		return heldLock{file: f}, nil
	case err != nil:
		return nil, errors.Join(err, f.Close())
	}
	if err := flock(dir, path); errors.Is(err, ErrLocked) {
		return nil, errors.Join(err, dir.Close(), f.Close())
	}
	return heldLock{file: f, dir: dir}, nil
}

// lockToRead implements LockToRead. flock needs no right to write, except on network filesystems, where a
// lock on a file that is open for reading may be refused.
func (osLocks) lockToRead(path string) (io.Closer, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return nil, errors.Join(err, dir.Close())
	}
	locked, refused := false, error(nil)
	for _, of := range []*os.File{dir, f} {
		if of == nil {
			continue
		}
		switch err := flock(of, path); {
		case err == nil:
			locked = true
		case refused == nil || errors.Is(err, ErrLocked):
			refused = err
		}
	}
	held := heldLock{file: f, dir: dir}
	if !locked || errors.Is(refused, ErrLocked) {
		return nil, errors.Join(refused, held.Close())
	}
	return held, nil
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
type heldLock struct{ file, dir *os.File } // nil: it is not there, or cannot be opened

func (l heldLock) Close() (err error) {
	for _, f := range []*os.File{l.dir, l.file} {
		if f != nil {
			err = errors.Join(err, f.Close())
		}
	}
	return err
}

// Leads implements dirLock.
func (l heldLock) Leads(dir string) error {
	if l.dir == nil {
		return nil
	}
	was, err := l.dir.Stat()
	if err != nil {
		return err
	}
	is, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(was, is):
		return &MovedError{Dir: dir}
	}
	return err
}
