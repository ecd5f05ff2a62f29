package vfs

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Inspecting a directory must not change a byte of it: another process may be writing to it, or an operator
// may keep it as evidence. ReadOnly makes this a property of the value instead of a rule for its user. Writes
// are refused before they reach the disk, and files of the machine's filesystem are opened without the right
// to write.

// ReadOnly returns a view of fsys that refuses every change with EROFS. Held asks fsys.
func ReadOnly(fsys FS) FS { return readOnly{fsys} }

type readOnly struct{ FS }

func (r readOnly) below() FS { return r.FS }

// readOpener is implemented by an FS that can open a file without the right to write to it.
type readOpener interface {
	openForReading(name string) (File, error)
}

func (osFS) openForReading(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func reject(op, name string) error {
	return &fs.PathError{Op: op, Path: name, Err: fmt.Errorf("this view is read-only: %w", syscall.EROFS)}
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

func (r readOnly) Create(name string) (File, error)            { return nil, reject("create", name) }
func (r readOnly) Rename(from, _ string) error                 { return reject("rename", from) }
func (r readOnly) Link(from, _ string) error                   { return reject("link", from) }
func (r readOnly) Remove(name string) error                    { return reject("remove", name) }
func (r readOnly) RemoveDir(dir string) error                  { return reject("rmdir", dir) }
func (r readOnly) MkdirAll(dir string) error                   { return reject("mkdir", dir) }
func (r readOnly) OpenDir(dir string) (Dir, error)             { return nil, reject("sync", dir) }
func (r readOnly) OpenDirect(name string) (BlockWriter, error) { return nil, reject("open", name) }
func (r readOnly) Lock(path string) (io.Closer, error)         { return nil, reject("lock", path) }
func (r readOnly) held(path string) (Holder, error)            { return Held(r.FS, path) }

type readOnlyFile struct {
	File
	name string
}

func (f readOnlyFile) WriteAt([]byte, int64) (int, error) { return 0, reject("write", f.name) }
func (f readOnlyFile) Sync() error                        { return reject("sync", f.name) }
func (f readOnlyFile) Truncate(int64) error               { return reject("truncate", f.name) }
func (f readOnlyFile) Preallocate(_, _ int64) error       { return reject("preallocate", f.name) }
