//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package vfs

import (
	"errors"
	"io"
	"os"
	"syscall"
)

type osLocks struct{}

// Lock uses flock(2): it belongs to the open file, so it also keeps two instances inside one process apart, and the
// kernel drops it when the process dies in whatever way.
func (osLocks) Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			break
		}
	}
	if err == nil {
		return f, nil
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = &LockedError{Path: path}
	} else {
		err = &os.PathError{Op: "flock", Path: path, Err: err}
	}
	return nil, errors.Join(err, f.Close())
}
