package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Looking at a directory that somebody else may be writing to, or that an operator holds as evidence, must not change a
// byte of it. ReadOnly makes that a property of the value and not of the care of its user: what would write is refused
// before it reaches the disk, and files of the machine's filesystem are opened without the right to write.

// ReadOnly returns a view of fsys through which nothing can be changed: whatever would is refused with EROFS. Held is
// answered by fsys.
func ReadOnly(fsys FS) FS { return readOnly{fsys} }

type readOnly struct{ FS }

// readOpener is an FS that can open a file without the right to write to it.
type readOpener interface {
	openForReading(name string) (File, error)
}

func (osFS) openForReading(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func refused(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("this view is for reading only: %w", syscall.EROFS)}
}

func (r readOnly) Open(name string) (File, error) {
	open := r.FS.Open
	if o, ok := r.FS.(readOpener); ok {
		open = o.openForReading
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return readOnlyFile{f, name}, nil
}

func (r readOnly) Create(name string) (File, error)            { return nil, refused("create", name) }
func (r readOnly) Rename(from, _ string) error                 { return refused("rename", from) }
func (r readOnly) Remove(name string) error                    { return refused("remove", name) }
func (r readOnly) MkdirAll(dir string) error                   { return refused("mkdir", dir) }
func (r readOnly) SyncDir(dir string) error                    { return refused("sync", dir) }
func (r readOnly) OpenDirect(name string) (BlockWriter, error) { return nil, refused("open", name) }
func (r readOnly) Lock(path string) (io.Closer, error)         { return nil, refused("lock", path) }
func (r readOnly) held(path string) (Holder, error)            { return Held(r.FS, path) }

type readOnlyFile struct {
	File
	name string
}

func (f readOnlyFile) WriteAt([]byte, int64) (int, error) { return 0, refused("write", f.name) }
func (f readOnlyFile) Sync() error                        { return refused("sync", f.name) }
func (f readOnlyFile) Truncate(int64) error               { return refused("truncate", f.name) }
func (f readOnlyFile) Preallocate(_, _ int64) error       { return refused("preallocate", f.name) }
