package crashfs

import (
	"io"
	"io/fs"

	"github.com/millrace/millrace/vfs"
)

// Mount returns the disk as one process sees it: every operation fails with ErrCrashed after the next Crash,
// also operations on names. With a Mount for each start, a worker that outlives the crash cannot touch the
// disk any more. A test that passes the FS itself to a program must make sure that no part of the program
// outlives the crash.
func (d *FS) Mount() vfs.FS { return mount{disk: d, power: d.powerNow()} }

type mount struct {
	disk      *FS
	power     uint64
	namespace *Namespace // nil: paths are those of the disk
}

// dead reports whether the power failed since Mount. The operation itself looks again when it has the disk's
// lock: another goroutine may crash the disk in between.
func (m mount) dead(op, name string) error {
	if m.disk.powerNow() != m.power {
		return &fs.PathError{Op: op, Path: name, Err: ErrCrashed}
	}
	return nil
}

func (m mount) Create(name string) (vfs.File, error) {
	if err := m.dead("create", name); err != nil {
		return nil, err
	}
	return m.disk.create(m.at(name), m.power)
}

func (m mount) OpenDirect(name string) (vfs.BlockWriter, error) {
	if err := m.dead("open", name); err != nil {
		return nil, err
	}
	return m.disk.openDirect(m.at(name), m.power)
}

func (m mount) Open(name string) (vfs.File, error) {
	if err := m.dead("open", name); err != nil {
		return nil, err
	}
	f, err := m.disk.open(m.at(name), m.power)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (m mount) Rename(from, to string) error {
	if err := m.dead("rename", from); err != nil {
		return err
	}
	return m.disk.rename(m.at(from), m.at(to), m.power)
}

func (m mount) Link(from, to string) error {
	if err := m.dead("link", to); err != nil {
		return err
	}
	return m.disk.link(m.at(from), m.at(to), m.power)
}

// SameFile implements vfs.SameFile.
func (m mount) SameFile(a, b string) (bool, error) {
	if err := m.dead("stat", a); err != nil {
		return false, err
	}
	return m.disk.SameFile(m.at(a), m.at(b))
}

func (m mount) RemoveDir(dir string) error {
	if err := m.dead("rmdir", dir); err != nil {
		return err
	}
	return m.disk.removeDir(m.at(dir), m.power)
}

func (m mount) Remove(name string) error {
	if err := m.dead("remove", name); err != nil {
		return err
	}
	return m.disk.remove(m.at(name), m.power)
}

func (m mount) ReadDir(dir string) ([]string, error) {
	if err := m.dead("readdir", dir); err != nil {
		return nil, err
	}
	return m.disk.readDir(m.at(dir), m.power)
}

func (m mount) MkdirAll(dir string) error {
	if err := m.dead("mkdir", dir); err != nil {
		return err
	}
	return m.disk.mkdirAll(m.at(dir), m.power)
}

func (m mount) OpenDir(dir string) (vfs.Dir, error) {
	if err := m.dead("opendir", dir); err != nil {
		return nil, err
	}
	return m.disk.openDir(m.at(dir), m.power)
}

func (m mount) BootID() (string, error) {
	if err := m.dead("bootid", "/"); err != nil {
		return "", err
	}
	return m.disk.BootID()
}

func (m mount) MountID(dir string) uint64 { return m.disk.MountID(dir) }

func (m mount) Lock(path string) (io.Closer, error) {
	if err := m.dead("lock", path); err != nil {
		return nil, err
	}
	return m.disk.takeLock(m.at(path), m.power, m.namespace)
}
