package vfs_test

import (
	"bytes"
	"errors"
	"io/fs"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// TestContract runs the same operations on every filesystem.
func TestContract(t *testing.T) {
	for name, disk := range map[string]vfs.FS{
		"os":      vfs.OS(),
		"delayed": vfs.WithSyncDelay(vfs.OS(), time.Millisecond),
		"narrow":  vfs.WithBandwidth(vfs.OS(), vfs.NewBandwidth(1<<30)),
		"crashfs": crashfs.New(),
		"memory":  vfs.Memory(),
		"mount":   crashfs.New().Mount(),
	} {
		t.Run(name, func(t *testing.T) { contract(t, disk, t.TempDir()) })
	}
}

func contract(t *testing.T, disk vfs.FS, root string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := root + "/a/b"
	must(disk.MkdirAll(dir))
	must(disk.MkdirAll(dir))
	f, err := disk.Create(dir + "/one")
	must(err)
	if _, err := disk.Create(dir + "/one"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create of an existing file: %v", err)
	}
	if _, err := disk.Open(dir + "/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open of a missing file: %v", err)
	}
	must(f.Preallocate(0, 10_000))
	_, err = f.WriteAt([]byte("hello"), 9_998)
	must(err)
	must(f.Sync())
	if size, err := f.Size(); size != 10_003 || err != nil {
		t.Errorf("size %d, %v", size, err)
	}
	must(vfs.WriteBack(f, vfs.Span{}, vfs.Span{}))
	must(vfs.WriteBack(f, vfs.Span{Off: 5000, Bytes: 5000}, vfs.Span{}))
	must(vfs.WriteBack(f, vfs.Span{Off: 10_000, Bytes: 9999}, vfs.Span{Off: 5000, Bytes: 5000}))
	must(f.Preallocate(0, 100))
	must(f.Truncate(10_001))
	must(f.Truncate(20_000))
	got := make([]byte, 10)
	_, err = f.ReadAt(got, 9_995)
	must(err)
	if !bytes.Equal(got, []byte("\x00\x00\x00hel\x00\x00\x00\x00")) {
		t.Errorf("read %q", got)
	}
	if n, err := f.ReadAt(got, 19_995); n != 5 || err == nil {
		t.Errorf("read over the end: %d, %v", n, err)
	}
	must(f.Close())
	must(disk.Rename(dir+"/one", dir+"/two"))
	g, err := disk.Create(dir + "/three")
	must(err)
	must(g.Close())
	must(vfs.SyncDir(disk, dir))
	names, err := disk.ReadDir(dir)
	must(err)
	if !slices.Equal(names, []string{"three", "two"}) {
		t.Errorf("names %v", names)
	}
	must(disk.Remove(dir + "/three"))
	if err := disk.Remove(dir + "/three"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("remove of a missing file: %v", err)
	}

	if err := disk.Rename(dir+"/three", dir+"/four"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rename of a missing file: %v", err)
	}
	links(t, disk, dir)

	first, err := disk.BootID()
	must(err)
	if again, err := disk.BootID(); again != first || err != nil {
		t.Errorf("boot %q, then %q, %v", first, again, err)
	}

	lock, err := disk.Lock(dir + "/LOCK")
	must(err)
	_, err = disk.Lock(dir + "/LOCK")
	var locked *vfs.LockedError
	if !errors.As(err, &locked) || !errors.Is(err, vfs.ErrLocked) || locked.Path != dir+"/LOCK" {
		t.Errorf("second lock: %v", err)
	}
	must(lock.Close())
	lock, err = disk.Lock(dir + "/LOCK")
	must(err)
	must(lock.Close())
}

// links gives a file two names, and removes a directory.
func links(t *testing.T, disk vfs.FS, root string) {
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := root + "/links"
	must(disk.MkdirAll(dir + "/in"))
	f, err := disk.Create(dir + "/one")
	must(err)
	_, err = f.WriteAt([]byte("text"), 0)
	must(err)
	must(f.Close())
	must(disk.Link(dir+"/one", dir+"/in/two"))
	if err := disk.Link(dir+"/one", dir+"/in/two"); !errors.Is(err, fs.ErrExist) {
		t.Errorf("link to a name that is taken: %v", err)
	}
	if err := disk.Link(dir+"/none", dir+"/three"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("link of a missing file: %v", err)
	}
	must(disk.Link(dir+"/one", dir+"/also"))
	if same, err := vfs.SameFile(disk, dir+"/one", dir+"/in/two"); !errors.Is(err, errors.ErrUnsupported) {
		if !same || err != nil {
			t.Errorf("two names of one file: %t, %v", same, err)
		}
		f, err := disk.Create(dir + "/other")
		must(err)
		must(f.Close())
		if same, err := vfs.SameFile(disk, dir+"/one", dir+"/other"); same || err != nil {
			t.Errorf("two files: %t, %v", same, err)
		}
		if _, err := vfs.SameFile(disk, dir+"/one", dir+"/none"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a file and none: %v", err)
		}
		must(disk.Remove(dir + "/other"))
	}
	must(disk.Rename(dir+"/one", dir+"/also")) // names of one file: nothing happens
	must(disk.Remove(dir + "/also"))
	must(disk.Remove(dir + "/one"))
	if names, err := disk.ReadDir(dir); err != nil || !slices.Equal(names, []string{"in"}) {
		t.Errorf("names %v, %v", names, err)
	}
	f, err = disk.Open(dir + "/in/two")
	must(err)
	got := make([]byte, 4)
	if _, err := f.ReadAt(got, 0); err != nil || string(got) != "text" {
		t.Errorf("the second name shows %q, %v", got, err)
	}
	must(f.Close())
	if err := disk.RemoveDir(dir + "/in"); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("rmdir of a directory with a file: %v", err)
	}
	if err := disk.RemoveDir(dir); !errors.Is(err, syscall.ENOTEMPTY) {
		t.Errorf("rmdir of a directory with a directory: %v", err)
	}
	must(disk.Remove(dir + "/in/two"))
	must(disk.RemoveDir(dir + "/in"))
	must(vfs.SyncDir(disk, dir))
	if err := disk.RemoveDir(dir + "/in"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("rmdir of a missing directory: %v", err)
	}
	must(disk.RemoveDir(dir))
	must(vfs.SyncDir(disk, root))
	if names, err := disk.ReadDir(root); err != nil || slices.Contains(names, "links") {
		t.Errorf("names %v, %v", names, err)
	}
	if free, err := vfs.FreeBytes(disk, root); free <= 0 && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("free space: %d, %v", free, err)
	}
}

// Nothing is durable after a write back, and what one has failed on later syncs do not make durable.
func TestWriteBackProvesNothing(t *testing.T) {
	for _, fails := range []bool{false, true} {
		disk := crashfs.New()
		f, err := disk.Create("/file")
		if err = errors.Join(err, vfs.SyncDir(disk, "/")); err != nil {
			t.Fatal(err)
		}
		span := vfs.Span{Bytes: 1000}
		if _, err := f.WriteAt(make([]byte, span.Bytes), 0); err != nil {
			t.Fatal(err)
		}
		if fails {
			disk.SetHook(crashfs.FailNth(crashfs.OpWriteBack, 1, syscall.EIO))
		}
		if err := vfs.WriteBack(f, span, vfs.Span{}); errors.Is(err, syscall.EIO) != fails {
			t.Fatal(err)
		}
		if fails {
			if err := f.Sync(); err != nil {
				t.Fatal(err)
			}
		}
		left, err := disk.Image(crashfs.LoseAll, nil).Open("/file")
		if err != nil {
			t.Fatal(err)
		}
		if size, err := left.Size(); size != 0 || err != nil {
			t.Errorf("%d bytes are durable, %v (the write back fails: %t)", size, err, fails)
		}
	}
}

func TestSpans(t *testing.T) {
	for _, c := range []struct{ a, b, want vfs.Span }{
		{vfs.Span{}, vfs.Span{Off: 5, Bytes: 2}, vfs.Span{Off: 5, Bytes: 2}},
		{vfs.Span{Off: 9}, vfs.Span{Off: 5, Bytes: 2}, vfs.Span{Off: 5, Bytes: 2}},
		{vfs.Span{Off: 10, Bytes: 5}, vfs.Span{Off: 2, Bytes: 3}, vfs.Span{Off: 2, Bytes: 13}},
		{vfs.Span{Off: 2, Bytes: 20}, vfs.Span{Off: 5, Bytes: 3}, vfs.Span{Off: 2, Bytes: 20}},
	} {
		if have, other := c.a.With(c.b), c.b.With(c.a); have != c.want || other != c.want {
			t.Errorf("%v and %v: %v, %v, want %v", c.a, c.b, have, other, c.want)
		}
	}
}

// Zeros that the disk writes by itself replace what the file holds, and are durable after a sync. A disk that
// cannot do it says so; what this machine's says depends on its kernel and its device.
func TestWriteZeroes(t *testing.T) {
	able, unable := crashfs.New(), crashfs.New()
	able.SetWriteZeroes(true)
	for _, c := range []struct {
		name string
		disk vfs.FS
		dir  string
	}{{"able", able, "/"}, {"unable", unable, "/"}, {"memory", vfs.Memory(), "."}, {"machine", vfs.OS(), t.TempDir()}} {
		f, err := c.disk.Create(c.dir + "/zeroes")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt(bytes.Repeat([]byte{7}, 3*vfs.BlockBytes), 0); err != nil {
			t.Fatal(err)
		}
		err = vfs.WriteZeroes(f, vfs.BlockBytes, 4*vfs.BlockBytes)
		if unsupported := errors.Is(err, errors.ErrUnsupported); err != nil && !unsupported || unsupported != (c.disk != able) && c.name != "machine" {
			t.Fatalf("%s: %v", c.name, err)
		}
		if err == nil {
			got := make([]byte, 5*vfs.BlockBytes)
			want := append(bytes.Repeat([]byte{7}, vfs.BlockBytes), make([]byte, 4*vfs.BlockBytes)...)
			if _, err := f.ReadAt(got, 0); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: the file holds something else, %v", c.name, err)
			}
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			t.Error(err)
		}
	}
	if err := vfs.SyncDir(able, "/"); err != nil {
		t.Fatal(err)
	}
	left, err := able.Image(crashfs.LoseAll, nil).Open("/zeroes")
	if err != nil {
		t.Fatal(err)
	}
	if size, err := left.Size(); size != 5*vfs.BlockBytes || err != nil {
		t.Errorf("%d bytes are durable, %v", size, err)
	}
}
