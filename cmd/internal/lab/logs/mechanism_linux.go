package logs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/vfs"
)

// osBatchFile is a batchFile by system calls. It does not use vfs, which offers what our log needs: this
// bench compares what a log could need.
type osBatchFile struct {
	*os.File
	fd     int
	direct bool
	bytes  []byte // what is written, again and again, with one more block for the end of a batch
}

func openBatchFile(m mechanism, path string, batch int64) (_ batchFile, err error) {
	if err := prepareFile(m.prepare, path); err != nil {
		return nil, err
	}
	flags := os.O_RDWR
	if m.direct {
		flags |= unix.O_DIRECT
	}
	if m.dsync {
		flags |= unix.O_DSYNC
	}
	f, err := os.OpenFile(path, flags, 0)
	if err != nil {
		return nil, err
	}
	file := &osBatchFile{File: f, fd: int(f.Fd()), direct: m.direct, bytes: vfs.Blocks(int(batch) + 2*vfs.BlockBytes)}
	copy(file.bytes, load.NewSource(len(file.bytes), 0).Value(load.ValueID{}))
	return file, nil
}

// prepareFile makes the file as the mechanism wants to find it, durably.
func prepareFile(p filePreparation, path string) (err error) {
	fs := vfs.OS()
	f, err := fs.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	switch p {
	case fallocated:
		if err := f.Preallocate(0, mechanismFileBytes); err != nil {
			return err
		}
	case zeroed:
		return lab.ZeroFill(f, mechanismFileBytes)
	}
	return f.Sync()
}

func (f *osBatchFile) write(off, n int64) error {
	if !f.direct {
		_, err := f.WriteAt(f.bytes[:n], off)
		return err
	}
	from := off &^ (vfs.BlockBytes - 1)
	end := (off + n + vfs.BlockBytes - 1) &^ (vfs.BlockBytes - 1)
	_, err := f.WriteAt(f.bytes[:end-from], from)
	return err
}

func (f *osBatchFile) sync() error { return retry(func() error { return unix.Fdatasync(f.fd) }) }

func (f *osBatchFile) writeBack(off, n int64) error {
	const all = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	return retry(func() error { return unix.SyncFileRange(f.fd, off, n, all) })
}

// retry repeats a system call that a signal has interrupted.
func retry(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}
