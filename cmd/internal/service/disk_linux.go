package service

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// freeBytes returns what an unprivileged user may still write to the filesystem of dir. ok is false if that
// is unknown.
func freeBytes(dir string) (free int64, ok bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return int64(s.Bavail) * int64(s.Bsize), true // Bsize is 32 bits on some systems
}

// forget takes the files below a directory out of the memory of the kernel, so that reads of them are cold.
// What was not written yet is written first.
func forget(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return ignoreRemoved(err)
		}
		f, err := os.Open(path)
		if err != nil {
			return ignoreRemoved(err)
		}
		return errors.Join(unix.Fdatasync(int(f.Fd())), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
	})
}

// fileOf returns a number that all names of a file have, and the bytes that it takes on the disk.
func fileOf(info fs.FileInfo) (inode uint64, bytes int64) {
	s := info.Sys().(*syscall.Stat_t)
	return s.Ino, s.Blocks * 512
}
