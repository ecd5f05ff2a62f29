//go:build linux

package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

func (f *osFile) Sync() error {
	return f.control("fdatasync", unix.Fdatasync)
}

func (f *osFile) Preallocate(off, n int64) error {
	err := f.control("fallocate", func(fd int) error { return unix.Fallocate(fd, 0, off, n) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return f.extend(off, n)
	}
	return err
}

// control runs a system call on the pinned descriptor until a signal no longer interrupts it.
func (f *osFile) control(op string, call func(fd int) error) error {
	var err error
	pin := f.raw.Control(func(fd uintptr) {
		for {
			if err = call(int(fd)); err != unix.EINTR {
				return
			}
		}
	})
	if pin != nil {
		return pin
	}
	if err != nil {
		return &os.PathError{Op: op, Path: f.file.Name(), Err: err}
	}
	return nil
}
