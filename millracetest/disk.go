package millracetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// OnDisk keeps the logs and snapshots of the nodes in directories below dir, on the machine's disk. It is
// for machines whose snapshots have files (millrace.FileSnapshot): they are linked, and links need one
// filesystem. Then Kill is what kill -9 is: what a node has written stays, and it writes nothing more. Its
// machine is not stopped by that: newMachine may be called while an earlier one is still open.
func OnDisk(dir string) Option { return func(o *options) { o.dir = dir } }

// disk is what a node stores: in memory, or below a directory.
type disk struct {
	memory *crashfs.FS
	dir    string // of the node; "": it is in memory
	life   *mortal
}

func newDisk(dir string, id uint64) *disk {
	if dir == "" {
		return &disk{memory: crashfs.New()}
	}
	return &disk{dir: filepath.Join(dir, fmt.Sprintf("node-%d", id))}
}

// mount returns the filesystem for one life of the node, and the directory of its host.
func (d *disk) mount() (fsys vfs.FS, dir string) {
	if d.dir == "" {
		return d.memory.Mount(), "data"
	}
	d.life = &mortal{FS: vfs.OS()}
	return d.life, filepath.Join(d.dir, "data")
}

// crash ends what the present life can do with the disk.
func (d *disk) crash() {
	if d.dir == "" {
		d.memory.Crash(crashfs.LoseAll, nil)
		return
	}
	d.life.dead.Store(true)
}

// wipe empties the disk. Nothing uses it.
func (d *disk) wipe() error {
	if d.dir == "" {
		d.memory = crashfs.New()
		return nil
	}
	return os.RemoveAll(d.dir)
}

// mortal is a filesystem that a process has until it dies.
type mortal struct {
	vfs.FS
	dead atomic.Bool
}

var errDead = errors.New("millracetest: the node was killed")

func (m *mortal) err() error {
	if m.dead.Load() {
		return errDead
	}
	return nil
}

// alive calls f unless the process is dead.
func (m *mortal) alive(f func() error) error {
	if err := m.err(); err != nil {
		return err
	}
	return f()
}

func (m *mortal) open(name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	if err := m.err(); err != nil {
		return nil, err
	}
	f, err := open(name)
	if err != nil {
		return nil, err
	}
	return mortalFile{f, m}, nil
}

func (m *mortal) Create(name string) (vfs.File, error) { return m.open(name, m.FS.Create) }
func (m *mortal) Open(name string) (vfs.File, error)   { return m.open(name, m.FS.Open) }

func (m *mortal) Rename(from, to string) error {
	return m.alive(func() error { return m.FS.Rename(from, to) })
}

func (m *mortal) Link(from, to string) error {
	return m.alive(func() error { return m.FS.Link(from, to) })
}

// SameFile implements vfs.SameFile.
func (m *mortal) SameFile(a, b string) (bool, error) { return vfs.SameFile(m.FS, a, b) }

func (m *mortal) Remove(name string) error {
	return m.alive(func() error { return m.FS.Remove(name) })
}

func (m *mortal) RemoveDir(dir string) error {
	return m.alive(func() error { return m.FS.RemoveDir(dir) })
}

func (m *mortal) MkdirAll(dir string) error {
	return m.alive(func() error { return m.FS.MkdirAll(dir) })
}

func (m *mortal) OpenDir(dir string) (vfs.Dir, error) {
	if err := m.err(); err != nil {
		return nil, err
	}
	d, err := m.FS.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	return mortalDir{d, m}, nil
}

func (m *mortal) OpenDirect(name string) (vfs.BlockWriter, error) {
	if err := m.err(); err != nil {
		return nil, err
	}
	w, err := m.FS.OpenDirect(name)
	if err != nil {
		return nil, err
	}
	return mortalBlocks{w, m}, nil
}

type mortalDir struct {
	vfs.Dir
	life *mortal
}

func (d mortalDir) Sync() error { return d.life.alive(d.Dir.Sync) }

type mortalFile struct {
	vfs.File
	life *mortal
}

func (f mortalFile) WriteAt(b []byte, off int64) (n int, err error) {
	err = f.life.alive(func() error { n, err = f.File.WriteAt(b, off); return err })
	return n, err
}

func (f mortalFile) Sync() error { return f.life.alive(f.File.Sync) }

func (f mortalFile) Truncate(size int64) error {
	return f.life.alive(func() error { return f.File.Truncate(size) })
}

func (f mortalFile) Preallocate(off, n int64) error {
	return f.life.alive(func() error { return f.File.Preallocate(off, n) })
}

type mortalBlocks struct {
	vfs.BlockWriter
	life *mortal
}

func (w mortalBlocks) WriteAt(b []byte, off int64) (n int, err error) {
	err = w.life.alive(func() error { n, err = w.BlockWriter.WriteAt(b, off); return err })
	return n, err
}
