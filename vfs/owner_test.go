//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package vfs_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/vfs"
)

// The directory of a lock is moved away, and another one is in its place: the view makes and syncs nothing
// there, and works again when the directory is back.
func TestOwnedMakesNothingBesideNoLock(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := vfs.OS().Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	fsys := vfs.Owned(vfs.OS(), lock, dir)
	inner := filepath.Join(dir, "groups", "1")
	check := func(step string, moved bool) {
		t.Helper()
		for name, err := range map[string]error{"MkdirAll": fsys.MkdirAll(inner), "Sync": vfs.SyncDir(fsys, filepath.Dir(dir))} {
			if errors.Is(err, vfs.ErrMoved) != moved || !moved && err != nil {
				t.Errorf("%s: %s: %v", step, name, err)
			}
		}
	}
	check("in its place", false)
	if err := os.Rename(dir, dir+"-moved"); err != nil {
		t.Fatal(err)
	}
	check("moved away", true)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	check("another in its place", true)
	if names, err := os.ReadDir(dir); err != nil || len(names) > 0 {
		t.Errorf("there is %v, %v", names, err)
	}
	if err := errors.Join(os.Remove(dir), os.Rename(dir+"-moved", dir)); err != nil {
		t.Fatal(err)
	}
	check("back", false)
}

// An absolute path stays right when the working directory changes; a simulated disk has no working directory.
func TestAbsolute(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	for name, fsys := range map[string]vfs.FS{"OS": vfs.OS(), "read-only": vfs.ReadOnly(vfs.OS()), "overlay": vfs.NewOverlay(vfs.OS())} {
		if have, err := vfs.Absolute(fsys, "data"); err != nil || have != filepath.Join(dir, "data") {
			t.Errorf("%s: %s, %v; want it in %s", name, have, err, dir)
		}
	}
	if have, err := vfs.Absolute(vfs.Memory(), "data"); err != nil || have != "data" {
		t.Errorf("memory: %s, %v; want data", have, err)
	}
	gone := filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	if have, err := vfs.Absolute(vfs.OS(), "data"); err == nil && have != filepath.Join(gone, "data") {
		t.Errorf("the working directory was removed: %s", have)
	}
}
