package stopwatch

import "github.com/millrace/millrace/vfs"

// Disk is a disk with names and sizes of files. After Forget it drops what is written into them.
type Disk struct {
	vfs.FS
	forgets bool
}

// NewDisk returns a disk that keeps names and sizes on another one.
func NewDisk(on vfs.FS) *Disk { return &Disk{FS: on} }

// Forget makes the disk drop what is written after this call.
func (d *Disk) Forget() { d.forgets = true }

// Create implements vfs.FS.
func (d *Disk) Create(name string) (vfs.File, error) { return d.file(d.FS.Create(name)) }

// Open implements vfs.FS.
func (d *Disk) Open(name string) (vfs.File, error) { return d.file(d.FS.Open(name)) }

func (d *Disk) file(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &file{f, d}, nil
}

// OpenDirect implements vfs.FS.
func (d *Disk) OpenDirect(name string) (vfs.BlockWriter, error) {
	w, err := d.FS.OpenDirect(name)
	if err != nil {
		return nil, err
	}
	return &blocks{w, d}, nil
}

type file struct {
	vfs.File
	disk *Disk
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	if f.disk.forgets {
		return len(p), nil
	}
	return f.File.WriteAt(p, off)
}

func (f *file) Sync() error {
	if f.disk.forgets {
		return nil
	}
	return f.File.Sync()
}

type blocks struct {
	vfs.BlockWriter
	disk *Disk
}

func (w *blocks) WriteAt(p []byte, off int64) (int, error) {
	if w.disk.forgets {
		return len(p), nil
	}
	return w.BlockWriter.WriteAt(p, off)
}
