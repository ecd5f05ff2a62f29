//go:build linux

package vfs

import "golang.org/x/sys/unix"

// MountID implements vfs.MountID. Linux has had ids that are never reused since 6.8; the older ids are reused
// at once, so they are not used here.
func (osFS) MountID(dir string) uint64 {
	var stat unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID_UNIQUE, &stat); err != nil || stat.Mask&unix.STATX_MNT_ID_UNIQUE == 0 {
		return 0
	}
	return stat.Mnt_id
}
