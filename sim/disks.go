package sim

import (
	"io"
	"io/fs"
	"strings"

	"github.com/millrace/millrace/vfs"
)

// disks are several disks under one tree, as an operator sees the directories of hosts on one machine: the
// first name of a path is that of the disk.
type disks map[string]vfs.FS

// at returns the disk of a path, and the path on it.
func (d disks) at(path string) (vfs.FS, string, error) {
	name, rest, _ := strings.Cut(path, "/")
	if fsys := d[name]; fsys != nil {
		return fsys, rest, nil
	}
	return nil, "", &fs.PathError{Op: "find", Path: path, Err: fs.ErrNotExist}
}

// on calls an operation on the disk of a path.
func (d disks) on(path string, do func(vfs.FS, string) error) error {
	fsys, rest, err := d.at(path)
	if err != nil {
		return err
	}
	return do(fsys, rest)
}

// get is on for operations that return something.
func get[T any](d disks, path string, do func(vfs.FS, string) (T, error)) (T, error) {
	fsys, rest, err := d.at(path)
	if err != nil {
		var none T
		return none, err
	}
	return do(fsys, rest)
}

// two is on for operations with two paths, which must be on one disk.
func (d disks) two(from, to string, do func(fsys vfs.FS, from, to string) error) error {
	fsys, src, err := d.at(from)
	if err != nil {
		return err
	}
	other, dst, err := d.at(to)
	if err != nil {
		return err
	}
	if fsys != other {
		return &fs.PathError{Op: "link", Path: to, Err: fs.ErrInvalid}
	}
	return do(fsys, src, dst)
}

func (d disks) Create(name string) (vfs.File, error)         { return get(d, name, vfs.FS.Create) }
func (d disks) Open(name string) (vfs.File, error)           { return get(d, name, vfs.FS.Open) }
func (d disks) Rename(from, to string) error                 { return d.two(from, to, vfs.FS.Rename) }
func (d disks) Link(from, to string) error                   { return d.two(from, to, vfs.FS.Link) }
func (d disks) Remove(name string) error                     { return d.on(name, vfs.FS.Remove) }
func (d disks) RemoveDir(dir string) error                   { return d.on(dir, vfs.FS.RemoveDir) }
func (d disks) ReadDir(dir string) ([]string, error)         { return get(d, dir, vfs.FS.ReadDir) }
func (d disks) MkdirAll(dir string) error                    { return d.on(dir, vfs.FS.MkdirAll) }
func (d disks) OpenDir(dir string) (vfs.Dir, error)          { return get(d, dir, vfs.FS.OpenDir) }
func (d disks) OpenDirect(n string) (vfs.BlockWriter, error) { return get(d, n, vfs.FS.OpenDirect) }
func (d disks) BootID() (string, error)                      { return "", nil }
func (d disks) Lock(path string) (io.Closer, error)          { return get(d, path, vfs.FS.Lock) }
