package crashfs

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/millrace/millrace/vfs"
)

// Disks that a reader cannot tell apart have the same hash; all others differ.
func TestHash(t *testing.T) {
	build := func(change func(d *FS)) uint64 {
		d := New()
		f, err := d.Create("/a")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("some bytes"), 4000); err != nil {
			t.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		before := d.Hash()
		change(d)
		if image := d.Image(LoseNothing, nil); image.Hash() != d.Hash() {
			t.Error("an image of everything has another hash")
		}
		if _, err := d.Create("/z"); err != nil || d.Hash() == before {
			t.Errorf("a new name does not change the hash: %v", err)
		}
		if err := d.Remove("/z"); err != nil {
			t.Fatal(err)
		}
		return d.Hash()
	}
	write := func(b string, off int64) func(d *FS) {
		return func(d *FS) {
			f, err := d.Open("/a")
			if err == nil {
				_, err = f.WriteAt([]byte(b), off)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	same := build(func(*FS) {})
	for name, row := range map[string]struct {
		change func(d *FS)
		same   bool
	}{
		"the same bytes":   {write("bytes", 4005), true},
		"zeros where none": {write("\x00\x00", 100), true},
		"another byte":     {write("B", 4005), false},
		"a byte elsewhere": {write("s", 4001), false},
		"longer by a zero": {write("\x00", 4010), false},
		"synced":           {func(d *FS) { f, _ := d.Open("/a"); _ = f.Sync() }, true},
		"another name":     {func(d *FS) { _ = d.Rename("/a", "/b") }, false},
		"a flipped bit":    {func(d *FS) { _ = d.FlipBit("/a", 4001, 3) }, false},
	} {
		if got := build(row.change) == same; got != row.same {
			t.Errorf("%s: same hash %v", name, got)
		}
	}
}

// A failed SyncDir keeps nothing, and later ones do not write its changes, until the process ends or the name
// is changed again.
func TestSyncDirForgets(t *testing.T) {
	for name, row := range map[string]struct {
		then func(d *FS)
		want []string
	}{
		"synced again":     {func(d *FS) { _ = vfs.SyncDir(d, "/") }, nil},
		"after the death":  {func(d *FS) { d.Crash(LoseNothing, nil); _ = vfs.SyncDir(d, "/") }, []string{"a"}},
		"made once more":   {func(d *FS) { _ = d.Remove("/a"); _, _ = d.Create("/a"); _ = vfs.SyncDir(d, "/") }, []string{"a"}},
		"renamed":          {func(d *FS) { _ = d.Rename("/a", "/b"); _ = vfs.SyncDir(d, "/") }, []string{"b"}},
		"another made too": {func(d *FS) { _, _ = d.Create("/c"); _ = vfs.SyncDir(d, "/") }, []string{"c"}},
	} {
		d := New()
		if _, err := d.Create("/a"); err != nil {
			t.Fatal(err)
		}
		d.SetHook(FailNth(OpSyncDir, 1, syscall.EIO))
		if err := vfs.SyncDir(d, "/"); !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		row.then(d)
		got, err := d.Image(LoseAll, nil).ReadDir("/")
		if err != nil || !slices.Equal(got, row.want) {
			t.Errorf("%s: %v, %v; want %v", name, got, err, row.want)
		}
	}
}
