package vfs

import (
	"errors"
	"fmt"
	"io"
)

// A process that holds a lock in a directory owns what is below the directory, as long as the path of the
// directory leads there. The path leads elsewhere when the directory is moved away, or when a filesystem is
// mounted over it. What was opened before goes on in the old place, and new files would be made in the new
// one: two halves, of which a later start finds one. A copy in the new place would lose files as well. Owned
// makes it a property of the value that a path which leads elsewhere leads nowhere.

// ErrMoved matches every MovedError with errors.Is.
var ErrMoved = errors.New("the directory is not the one that is locked")

// MovedError names a path that leads to another directory than this process has locked.
type MovedError struct{ Dir string }

func (e *MovedError) Error() string {
	return fmt.Sprintf("%s does not lead to the directory that this process has locked: it was moved or removed, or a filesystem was mounted over it; bring it back, and restart the process", e.Dir)
}

// Unwrap makes errors.Is(err, ErrMoved) true.
func (e *MovedError) Unwrap() error { return ErrMoved }

// Owned returns a view of fsys for a process that has taken lock in dir. While dir leads to another directory
// than when the lock was taken, each call with a path fails with a *MovedError before it does anything. So
// nothing is made, renamed or removed beside no lock, and what is found there, or missing, is not believed.
// The Sync of a directory that was opened before fails too. Files that are open go on. Locks of the machine's
// filesystem and of crashfs know their directory; with any other lock the view refuses nothing.
func Owned(fsys FS, lock io.Closer, dir string) FS {
	l, ok := lock.(dirLock)
	if !ok {
		return fsys
	}
	return owned{FS: fsys, lock: l, dir: dir}
}

// dirLock is implemented by a lock that knows the directory in which it was taken.
type dirLock interface {
	// Leads returns a *MovedError if dir is another directory.
	Leads(dir string) error
}

type owned struct {
	FS
	lock dirLock
	dir  string
}

func (o owned) below() FS { return o.FS }

// leads returns a *MovedError if the path leads elsewhere by now.
func (o owned) leads() error { return o.lock.Leads(o.dir) }

// there is a call that returns something, if the path leads to the directory.
func there[T any](o owned, name string, do func(string) (T, error)) (T, error) {
	if err := o.leads(); err != nil {
		var none T
		return none, err
	}
	return do(name)
}

func (o owned) Create(name string) (File, error)         { return there(o, name, o.FS.Create) }
func (o owned) Open(name string) (File, error)           { return there(o, name, o.FS.Open) }
func (o owned) ReadDir(dir string) ([]string, error)     { return there(o, dir, o.FS.ReadDir) }
func (o owned) OpenDirect(n string) (BlockWriter, error) { return there(o, n, o.FS.OpenDirect) }

func (o owned) Rename(from, to string) error {
	return o.change(func() error { return o.FS.Rename(from, to) })
}

func (o owned) Link(from, to string) error {
	return o.change(func() error { return o.FS.Link(from, to) })
}

func (o owned) Remove(name string) error { return o.change(func() error { return o.FS.Remove(name) }) }
func (o owned) RemoveDir(dir string) error {
	return o.change(func() error { return o.FS.RemoveDir(dir) })
}
func (o owned) MkdirAll(dir string) error {
	return o.change(func() error { return o.FS.MkdirAll(dir) })
}

// change calls do if the path leads to the directory.
func (o owned) change(do func() error) error {
	if err := o.leads(); err != nil {
		return err
	}
	return do()
}

func (o owned) OpenDir(dir string) (Dir, error) {
	d, err := there(o, dir, o.FS.OpenDir)
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
	return d.of.leads()
}
