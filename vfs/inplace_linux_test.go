package vfs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// On btrfs, files that are made after the call have the flag, and a file that was written before is named.
// Filesystems that overwrite in place are left alone.
func TestPlaceInPlace(t *testing.T) {
	if p, err := PlaceInPlace(OS(), t.TempDir(), nil); err != nil {
		t.Errorf("%+v, %v", p, err)
	}
	if p, err := PlaceInPlace(Memory(), "/", nil); p != (Placement{}) || err != nil {
		t.Errorf("%+v, %v", p, err)
	}
	var stat unix.Statfs_t
	if unix.Statfs("/dev/shm", &stat) == nil && stat.Type == unix.TMPFS_MAGIC {
		if p, err := PlaceInPlace(OS(), "/dev/shm", nil); err != nil || !p.Cuts {
			t.Errorf("on tmpfs, which takes direct writes to the page cache: %+v, %v", p, err)
		}
	}
	if testing.Short() {
		t.Skip("-short: making and mounting filesystems takes a second")
	}
	dir := mountBtrfs(t)
	if err := os.WriteFile(filepath.Join(dir, "old"), []byte("bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	fs := WithSyncDelay(OS(), time.Nanosecond)
	if p, err := PlaceInPlace(fs, dir, []string{"old", "absent"}); err != nil || !p.Moves || p.Filesystem != "btrfs" || p.Reason == "" {
		t.Errorf("with a file that has bytes: %+v, %v", p, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), []byte("bytes"), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := PlaceInPlace(fs, dir, []string{"new"}); err != nil || p.Moves {
		t.Errorf("with a file that was made afterwards: %+v, %v", p, err)
	}
}

// mountBtrfs mounts a small btrfs, or skips the test where the machine does not allow it.
func mountBtrfs(t *testing.T) string {
	t.Helper()
	image, dir := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 128<<20); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs.btrfs", "-q", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no btrfs here: %v: %v %s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v %s", dir, err, out)
		}
	})
	return dir
}
