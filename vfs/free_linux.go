//go:build linux

package vfs

import (
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// FreeBytes implements vfs.FreeBytes with statfs: blocks that a user without privileges may still take.
func (osFS) FreeBytes(dir string) (int64, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := max(1, int64(stat.Bsize)) // 32 bits on some machines
	return int64(min(stat.Bavail, uint64(math.MaxInt64/unit))) * unit, nil
}
