//go:build linux

package vfs

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

func (f *osFile) Sync() error {
	return f.control("fdatasync", unix.Fdatasync)
}

// WriteBack implements vfs.WriteBack. The kernel tells an error to the first that asks, so one that the wait
// returns is not told again by a Sync.
func (f *osFile) WriteBack(next, last Span) error {
	err := f.writeRange(next, unix.SYNC_FILE_RANGE_WRITE)
	if err == nil {
		err = f.writeRange(last, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	}
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) {
		return f.Sync()
	}
	return err
}

func (f *osFile) writeRange(s Span, flags int) error {
	if s.Bytes == 0 { // the kernel would take it for all that follows
		return nil
	}
	return f.control("sync_file_range", func(fd int) error { return unix.SyncFileRange(fd, s.Off, s.Bytes, flags) })
}

func (f *osFile) Preallocate(off, n int64) error {
	err := f.control("fallocate", func(fd int) error { return unix.Fallocate(fd, 0, off, n) })
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return f.extend(off, n)
	}
	return err
}

// WriteZeroes implements vfs.WriteZeroes. A kernel that does not know the mode answers EOPNOTSUPP, as does a
// filesystem over a device without it. Filesystems in user space answer EINVAL and ENOSYS too.
func (f *osFile) WriteZeroes(off, n int64) error {
	err := f.control("fallocate", func(fd int) error { return unix.Fallocate(fd, unix.FALLOC_FL_WRITE_ZEROES, off, n) })
	for _, refused := range []error{unix.EOPNOTSUPP, unix.EINVAL, unix.ENOSYS} {
		if errors.Is(err, refused) {
			return fmt.Errorf("%w (%w)", err, errors.ErrUnsupported)
		}
	}
	return err
}

func (osFS) OpenDirect(name string) (BlockWriter, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|unix.O_DIRECT, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, fmt.Errorf("open %s for direct writes: %w (%w)", name, errors.ErrUnsupported, err)
	}
	if err != nil {
		return nil, err
	}
	var stat unix.Statx_t
	err = unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &stat)
	if err == nil && stat.Mask&unix.STATX_DIOALIGN != 0 && stat.Dio_mem_align == 0 { // ext4 with data=journal takes O_DIRECT, too
		return nil, errors.Join(fmt.Errorf("open %s for direct writes: %w", name, errors.ErrUnsupported), f.Close())
	}
	return f, nil
}

// BootID is the kernel's own.
func (osFS) BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) {
		return "", nil // a sandbox without /proc
	}
	return strings.TrimSpace(string(id)), err
}

// control runs a system call on the pinned descriptor, and repeats it while a signal interrupts it. Each
// round of a log syncs, so the memory of the call is reused.
func (f *osFile) control(op string, call func(fd int) error) error {
	p := pinnedCalls.Get().(*pinnedCall)
	p.call = call
	pin := f.raw.Control(p.run)
	err := p.err
	p.call, p.err = nil, nil
	pinnedCalls.Put(p)
	if pin != nil {
		return pin
	}
	if err != nil {
		return &os.PathError{Op: op, Path: f.file.Name(), Err: err}
	}
	return nil
}

// pinnedCall is a system call on a descriptor that is pinned meanwhile.
type pinnedCall struct {
	call func(fd int) error
	err  error
	run  func(fd uintptr) // what RawConn.Control gets
}

var pinnedCalls = sync.Pool{New: func() any {
	p := &pinnedCall{}
	p.run = func(fd uintptr) {
		for {
			if p.err = p.call(int(fd)); p.err != unix.EINTR {
				return
			}
		}
	}
	return p
}}
