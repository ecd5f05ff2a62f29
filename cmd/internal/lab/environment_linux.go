package lab

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// freeBytes returns what an unprivileged user may still write to the filesystem of dir. ok is false if that
// is unknown.
func freeBytes(dir string) (free uint64, ok bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, false
	}
	return s.Bavail * uint64(s.Bsize), true
}

// filesystemNames holds the magic numbers that Go's unix package and the kernel's headers give (statfs(2)).
var filesystemNames = map[uint32]string{
	unix.EXT4_SUPER_MAGIC: "ext4", unix.XFS_SUPER_MAGIC: "xfs", unix.BTRFS_SUPER_MAGIC: "btrfs",
	unix.TMPFS_MAGIC: Tmpfs, unix.RAMFS_MAGIC: Tmpfs, unix.OVERLAYFS_SUPER_MAGIC: "overlay",
	unix.NFS_SUPER_MAGIC: "nfs", unix.F2FS_SUPER_MAGIC: "f2fs", unix.FUSE_SUPER_MAGIC: "fuse",
	0x2fc12fc1: "zfs", 0x01021997: "9p",
}

func filesystemOf(dir string) string {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return ""
	}
	magic := uint32(s.Type)
	if name, ok := filesystemNames[magic]; ok {
		return name
	}
	return fmt.Sprintf("0x%x", magic)
}

func describeMachine(e *Environment) {
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		e.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		e.MemoryMiB = uint64(info.Totalram) * uint64(info.Unit) >> 20
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		_, _ = fmt.Sscan(string(text), &e.Load1) // stays 0 if the kernel prints something else
	}
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
			e.CPU = strings.TrimSpace(value)
			break
		}
	}
}
