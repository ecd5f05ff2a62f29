package day2

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// What a machine can lack: space on a disk, descriptors of a process. Both need root, or the same user.

// smallBytes is the size of the small filesystem: a log of a few segments, and its reserve.
const smallBytes = 512 << 20

// mountSmall mounts a filesystem in memory, if it may.
func mountSmall(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallBytes))
	if errors.Is(err, unix.EPERM) {
		t.Logf("no small filesystem: %v", err)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	mounted = append(mounted, dir)
}

// mounted are the directories with a filesystem of their own. They are unmounted when the day ends.
var mounted []string

func unmountAll(t *testing.T) {
	for _, dir := range mounted {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	}
	mounted = nil
}

func isMount(dir string) bool {
	for _, m := range mounted {
		if m == dir {
			return true
		}
	}
	return false
}

// fill writes a file until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	block := make([]byte, 1<<20)
	for {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// leaveDescriptors limits the open files of a process to what it has, and n more. restore puts the limit
// back.
func leaveDescriptors(pid, n int) (restore func() error, err error) {
	open, err := os.ReadDir(filepath.Join("/proc", fmt.Sprint(pid), "fd"))
	if err != nil {
		return nil, err
	}
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &was); err != nil {
		return nil, err
	}
	tight := unix.Rlimit{Cur: uint64(len(open) + n), Max: was.Max}
	if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &tight, nil); err != nil {
		return nil, err
	}
	return func() error { return unix.Prlimit(pid, unix.RLIMIT_NOFILE, &was, nil) }, nil
}
