package crashfs_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Relative paths follow the working directory of a process. Absolute paths, what is open and other processes
// do not.
func TestChdir(t *testing.T) {
	d := crashfs.New()
	ok(t, d.MkdirAll("data"))
	var n crashfs.Namespace
	m := d.MountIn(&n)
	absolute, err := vfs.Absolute(m, "data")
	if ok(t, err); absolute != crashfs.Home+"/data" {
		t.Errorf("the directory is %s", absolute)
	}
	f := create(t, m, "data/f")
	n.Chdir("/elsewhere")
	write(t, f, 0, []byte("x"))
	if _, err := m.Open("data/f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("in another working directory the relative path leads to: %v", err)
	}
	for name, fsys := range map[string]vfs.FS{"data/f": d.Mount(), absolute + "/f": m, "../home/data/f": m} {
		if have := contents(t, fsys, name); string(have) != "x" {
			t.Errorf("%s has %q", name, have)
		}
	}
	ok(t, m.MkdirAll("data"))
	if names, err := d.ReadDir("/elsewhere"); err != nil || len(names) != 1 {
		t.Errorf("elsewhere there is %v, %v", names, err)
	}
	n.Chdir("../home")
	if names, err := m.ReadDir("."); err != nil || len(names) != 1 || names[0] != "data" {
		t.Errorf("at home there is %v, %v", names, err)
	}
	if have, err := vfs.Absolute(d.Mount(), "data"); err != nil || have != "data" {
		t.Errorf("a process without a working directory: %s, %v", have, err)
	}
}

// A directory with a lock is moved away while a process runs, and a copy is in its place. What is open goes
// on. A view of what the process owns makes, renames, removes and believes nothing there.
func TestCover(t *testing.T) {
	d := crashfs.New()
	ok(t, d.MkdirAll("data"))
	ok(t, d.MkdirAll("/copy"))
	create(t, d, "/copy/f")
	var n crashfs.Namespace
	m := d.MountIn(&n)
	lock, err := m.Lock("data/LOCK")
	ok(t, err)
	defer lock.Close()
	fsys := vfs.Owned(m, lock, crashfs.Home+"/data")
	f := create(t, fsys, "data/f")
	names, err := fsys.OpenDir("data")
	ok(t, err)
	calls := func() map[string]error {
		_, created := fsys.Create("data/g")
		_, opened := fsys.Open("data/f")
		_, direct := fsys.OpenDirect("data/f")
		_, read := fsys.ReadDir("data")
		_, dir := fsys.OpenDir("data")
		return map[string]error{
			"Create": created, "Open": opened, "OpenDirect": direct, "ReadDir": read, "OpenDir": dir,
			"Rename": fsys.Rename("data/g", "data/h"), "Link": fsys.Link("data/h", "data/i"), "Remove": fsys.Remove("data/h"),
			"MkdirAll": fsys.MkdirAll("data/d"), "RemoveDir": fsys.RemoveDir("data/d"), "Sync": names.Sync(),
		}
	}
	n.Cover("data", "/copy")
	for name, err := range calls() {
		if !errors.Is(err, vfs.ErrMoved) {
			t.Errorf("%s in the place of the directory: %v", name, err)
		}
	}
	write(t, f, 0, []byte("x"))
	if have := contents(t, d, "data/f"); string(have) != "x" {
		t.Errorf("a file that was open has %q", have)
	}
	if there, err := d.ReadDir("/copy"); err != nil || len(there) != 1 {
		t.Errorf("in the copy there is %v, %v", there, err)
	}
	if _, err := m.Open("database"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path that only begins as the directory: %v", err)
	}
	n.Uncover()
	for _, err := range calls() {
		ok(t, err)
	}
}
