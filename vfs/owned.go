package vfs

import (
	"errors"
	"fmt"
	"io"
)

// A process that holds a lock in a directory owns what is below the directory, as long as the path of the
// directory leads there. The path leads elsewhere when the directory is moved away, or when a filesystem is
// mounted over it. What was opened before goes on in the old place, and new files would be made in the new
// one: two halves, of which a later start finds one. Owned makes it a property of the value that a half is
// never made, and never durable.

// ErrMoved matches every MovedError with errors.Is.
var ErrMoved = errors.New("the directory is not the one that is locked")

// MovedError names a path that leads to another directory than this process has locked.
type MovedError struct{ Dir string }

func (e *MovedError) Error() string {
	return fmt.Sprintf("%s does not lead to the directory that this process has locked: it was moved or removed, or a filesystem was mounted over it; bring it back, and restart the process", e.Dir)
}

// Unwrap makes errors.Is(err, ErrMoved) true.
func (e *MovedError) Unwrap() error { return ErrMoved }

// Owned returns a view of fsys for a process that has taken lock in dir. MkdirAll and the Sync of a directory
// fail with a *MovedError while dir leads to another directory than when the lock was taken. So no directory
// is made beside no lock, and no name there is ever durable. Locks of the machine's filesystem know their
// directory; with any other lock the view refuses nothing.
func Owned(fsys FS, lock io.Closer, dir string) FS {
	l, ok := lock.(dirLock)
	if !ok {
		return fsys
	}
	return owned{FS: fsys, lock: l, dir: dir}
}

// dirLock is implemented by a lock that knows the directory in which it was taken.
type dirLock interface {
	// leads returns a *MovedError if dir is another directory.
	leads(dir string) error
}

type owned struct {
	FS
	lock dirLock
	dir  string
}

func (o owned) below() FS { return o.FS }

// MkdirAll looks before it makes anything.
func (o owned) MkdirAll(dir string) error {
	if err := o.lock.leads(o.dir); err != nil {
		return err
	}
	return o.FS.MkdirAll(dir)
}

func (o owned) OpenDir(dir string) (Dir, error) {
	d, err := o.FS.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	return ownedDir{Dir: d, of: o}, nil
}

type ownedDir struct {
	Dir
	of owned
}

// Sync looks after the sync: a path that leads here then has led here during the sync.
func (d ownedDir) Sync() error {
	if err := d.Dir.Sync(); err != nil {
		return err
	}
	return d.of.lock.leads(d.of.dir)
}
