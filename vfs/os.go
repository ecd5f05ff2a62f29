package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// OS returns the machine's filesystem. On Linux Sync is fdatasync and Preallocate is fallocate; elsewhere
// they are fsync and a plain extension.
func OS() FS { return osFS{} }

type osFS struct{ osLocks }

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) {
	return openOS(name, os.O_RDWR)
}

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	raw, err := f.SyscallConn()
	if err != nil {
		_ = f.Close() // the descriptor was never used
		return nil, err
	}
	return &osFile{file: f, raw: raw}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

// Link reports what a filesystem may refuse for good as ErrUnsupported; EPERM is also what Linux says about
// the file of another user (protected_hardlinks).
func (osFS) Link(from, to string) error {
	err := os.Link(from, to)
	for _, refused := range []error{syscall.EXDEV, syscall.EPERM, syscall.EMLINK, syscall.EOPNOTSUPP, syscall.ENOSYS} {
		if errors.Is(err, refused) {
			return fmt.Errorf("%w (%w)", err, errors.ErrUnsupported)
		}
	}
	return err
}

func (osFS) Remove(name string) error { return os.Remove(name) }

func (osFS) RemoveDir(dir string) error {
	if err := syscall.Rmdir(dir); err != nil {
		return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
	}
	return nil
}

func (osFS) ReadDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir) // sorted by name
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// MkdirAll fsyncs the parent of each directory that it makes, and of dir itself in any case, as an earlier
// run may have died between making and syncing it.
func (o osFS) MkdirAll(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case err == nil:
		return o.syncParent(dir)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if parent != dir {
		if err := o.MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return SyncDir(o, parent)
}

// syncParent makes the entry of an existing directory durable. If its parent may not be opened (as "/" in a
// sandbox), another user made this directory, and nothing is done.
func (o osFS) syncParent(dir string) error {
	err := SyncDir(o, filepath.Dir(filepath.Clean(dir)))
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	return err
}

func (osFS) OpenDir(dir string) (Dir, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	info, err := d.Stat()
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: dir, Err: syscall.ENOTDIR}
	}
	if err != nil {
		_ = d.Close() // it was never used
		return nil, err
	}
	return d, nil
}

// osFile keeps the RawConn beside the file. It pins the descriptor during a system call, so that a misplaced
// Close can never make Sync act on another file's descriptor.
type osFile struct {
	file *os.File
	raw  syscall.RawConn
}

// ReadAt and WriteAt retry EINTR and finish short transfers; os.File promises both.
func (f *osFile) ReadAt(p []byte, off int64) (int, error)  { return f.file.ReadAt(p, off) }
func (f *osFile) WriteAt(p []byte, off int64) (int, error) { return f.file.WriteAt(p, off) }
func (f *osFile) Truncate(size int64) error                { return f.file.Truncate(size) }
func (f *osFile) Close() error                             { return f.file.Close() }

func (f *osFile) Size() (int64, error) {
	info, err := f.file.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// extend grows the file to hold [off, off+n) without reserving blocks.
func (f *osFile) extend(off, n int64) error {
	size, err := f.Size()
	if err != nil || size >= off+n {
		return err
	}
	return f.file.Truncate(off + n)
}
