//go:build linux

package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// held reads the kernel's table of locks, for the file and for its directory: Lock takes both, and the file
// may have been removed since. The table does not show the locks of processes in other containers.
func (osFS) held(path string) (Holder, error) {
	h, err := heldInode(path)
	if err != nil || h.Held {
		return h, err
	}
	return heldInode(filepath.Dir(path))
}

func heldInode(path string) (Holder, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Holder{}, nil
	}
	if err != nil {
		return Holder{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return Holder{}, fmt.Errorf("inode of %s: %w", path, errors.ErrUnsupported)
	}
	table, err := os.ReadFile("/proc/locks")
	if err != nil {
		return Holder{}, fmt.Errorf("whether %s is locked: cannot read /proc/locks: %w: %w", path, errors.ErrUnsupported, err)
	}
	for line := range strings.Lines(string(table)) {
		if pid, ok := holdsFlock(line, uint64(stat.Dev), stat.Ino); ok {
			return Holder{Held: true, PID: pid}, nil
		}
	}
	return Holder{}, nil
}

// holdsFlock reads one line of /proc/locks, for instance
//
//	7: FLOCK  ADVISORY  WRITE 4711 fd:01:131090 0 EOF
//
// The device is that of the filesystem's superblock. stat does not show it for filesystems that have no
// device of their own (btrfs, overlay: major 0); for those only the inode is compared.
func holdsFlock(line string, dev, ino uint64) (pid int, ok bool) {
	words := strings.Fields(line)
	if len(words) < 6 || words[1] != "FLOCK" || words[3] != "WRITE" { // "->" instead of FLOCK means that it waits
		return 0, false
	}
	device := strings.Split(words[5], ":")
	if len(device) != 3 {
		return 0, false
	}
	major, err1 := strconv.ParseUint(device[0], 16, 32)
	minor, err2 := strconv.ParseUint(device[1], 16, 32)
	inode, err3 := strconv.ParseUint(device[2], 10, 64)
	pid, err4 := strconv.Atoi(words[4])
	if errors.Join(err1, err2, err3, err4) != nil || inode != ino {
		return 0, false
	}
	sameDevice := uint32(major) == unix.Major(dev) && uint32(minor) == unix.Minor(dev)
	return max(pid, 0), sameDevice || major == 0
}
