//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package vfs_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/millrace/millrace/vfs"
)

// lockerEnv makes this test binary the other process of TestLockOutlivesItsFile: it names the lock to take.
const lockerEnv = "MILLRACE_TEST_LOCK"

// The file of a lock is removed while the lock is held. No other instance gets the lock, neither in this
// process nor in another, and Held reports that it is held.
func TestLockOutlivesItsFile(t *testing.T) {
	if path := os.Getenv(lockerEnv); path != "" { // the other process
		lock, err := vfs.OS().Lock(path)
		if errors.Is(err, vfs.ErrLocked) {
			os.Exit(3)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := lock.Close(); err != nil {
			t.Fatal(err)
		}
		os.Exit(4)
	}
	path := filepath.Join(t.TempDir(), "LOCK")
	other := func() int {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestLockOutlivesItsFile$")
		cmd.Env = append(os.Environ(), lockerEnv+"="+path)
		var exit *exec.ExitError
		if err := cmd.Run(); !errors.As(err, &exit) {
			t.Fatalf("the other process: %v", err)
		}
		return exit.ExitCode()
	}
	lock, err := vfs.OS().Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, harm := range []func() error{
		func() error { return nil },
		func() error { return os.Remove(path) },
		func() error { return os.WriteFile(path, nil, 0o600) }, // made again
	} {
		if err := harm(); err != nil {
			t.Fatal(err)
		}
		if second, err := vfs.OS().Lock(path); !errors.Is(err, vfs.ErrLocked) {
			t.Errorf("a second lock in this process: have %v, want ErrLocked", err)
			if err == nil {
				second.Close()
			}
		}
		if status := other(); status != 3 {
			t.Errorf("a second lock in another process: exit status %d, want 3, ErrLocked", status)
		}
		if held, err := vfs.Held(vfs.OS(), path); runtime.GOOS == "linux" && (err != nil || !held.Held || held.PID != os.Getpid()) {
			t.Errorf("held by %+v, %v; want this process, %d", held, err, os.Getpid())
		}
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if status := other(); status != 4 {
		t.Errorf("a lock that was released, in another process: exit status %d, want 4, success", status)
	}
	if held, err := vfs.Held(vfs.OS(), path); runtime.GOOS == "linux" && (err != nil || held.Held) {
		t.Errorf("a lock that was released is held by %+v, %v", held, err)
	}
}
