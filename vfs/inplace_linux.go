//go:build linux

package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Magic numbers of copy-on-write filesystems that package unix does not have.
const (
	zfsMagic      = 0x2fc12fc1
	bcachefsMagic = 0xca451a4e
)

// noCopyOnWrite is FS_NOCOW_FL of linux/fs.h: the file is overwritten in place. Files inherit the flag from
// the directory in which they are made. On a file that has bytes it has no effect.
const noCopyOnWrite = 0x00800000

// PlaceInPlace implements vfs.PlaceInPlace: btrfs has a flag for it. The flag costs these files the
// filesystem's checksums, which a log does not need, and its compression.
func (osFS) PlaceInPlace(dir string, names []string) (Placement, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return Placement{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	switch uint32(stat.Type) {
	case zfsMagic:
		return Placement{Moves: true, Cuts: true, Filesystem: "ZFS", Reason: "it cannot be told to write in place"}, nil
	case bcachefsMagic:
		return Placement{Moves: true, Cuts: true, Filesystem: "bcachefs", Reason: "Millrace does not tell it to write in place"}, nil
	case unix.BTRFS_SUPER_MAGIC:
		p := placeOnBtrfs(dir, names)
		p.Cuts = true
		return p, nil
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC:
		return Placement{}, nil
	}
	return Placement{Cuts: true}, nil
}

// placeOnBtrfs sets the flag on the directory and on empty files, and checks it on the other files.
func placeOnBtrfs(dir string, names []string) Placement {
	moves := func(format string, args ...any) Placement {
		return Placement{Moves: true, Filesystem: "btrfs", Reason: fmt.Sprintf(format, args...)}
	}
	if _, err := setNoCopyOnWrite(dir); err != nil {
		return moves("it could not be told to write in place (FS_NOCOW_FL): %v", err)
	}
	for _, name := range names {
		switch set, err := setNoCopyOnWrite(filepath.Join(dir, name)); {
		case errors.Is(err, os.ErrNotExist):
		case err != nil:
			return moves("%s could not be told to be written in place (FS_NOCOW_FL): %v", name, err)
		case !set:
			return moves("%s was made before the directory had the flag FS_NOCOW_FL; it will be written in place after it is replaced", name)
		}
	}
	return Placement{Filesystem: "btrfs"}
}

// setNoCopyOnWrite sets the flag, and reports whether it is set afterwards. A file that has bytes cannot get
// it.
func setNoCopyOnWrite(path string) (set bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	get := func() (flags int, err error) {
		return unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	}
	flags, err := get()
	if err != nil || flags&noCopyOnWrite != 0 {
		return err == nil, err
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags|noCopyOnWrite); err != nil {
		if errors.Is(err, unix.EINVAL) { // it has bytes
			return false, nil
		}
		return false, err
	}
	flags, err = get()
	return flags&noCopyOnWrite != 0, err
}
