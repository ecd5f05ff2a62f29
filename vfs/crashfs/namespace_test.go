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
