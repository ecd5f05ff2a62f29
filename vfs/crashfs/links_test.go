package crashfs_test

import (
	"errors"
	"io/fs"
	"slices"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, disk vfs.FS, name, text string) {
	t.Helper()
	f, err := disk.Create(name)
	must(t, err)
	_, err = f.WriteAt([]byte(text), 0)
	must(t, errors.Join(err, f.Sync(), f.Close()))
}

// A link that was not followed by SyncDir may be lost, and never takes the first name with it. After SyncDir
// the second name stands for itself: the first one may go.
func TestLinksInACrash(t *testing.T) {
	disk := crashfs.New()
	must(t, disk.MkdirAll("/a"))
	must(t, disk.MkdirAll("/b"))
	put(t, disk, "/a/one", "text")
	must(t, vfs.SyncDir(disk, "/a"))
	must(t, disk.Link("/a/one", "/b/two"))
	seen := map[string]bool{}
	for d, image := range disk.Images(16, 1) {
		if have := load2(image, "/a/one"); have != "text" {
			t.Errorf("the first name shows %q: %v", have, d)
		}
		seen[load2(image, "/b/two")] = true
	}
	if !seen["text"] || !seen[""] || len(seen) != 2 {
		t.Errorf("a link without SyncDir: %v, want it there and lost", seen)
	}
	if used := disk.UsedBytes(); used != 4096 {
		t.Errorf("a file with two names uses %d bytes, want 4096", used)
	}
	must(t, vfs.SyncDir(disk, "/b"))
	must(t, disk.Remove("/a/one"))
	for d, image := range disk.Images(16, 1) {
		if have := load2(image, "/b/two"); have != "text" {
			t.Errorf("the second name shows %q: %v", have, d)
		}
	}
}

func load2(disk vfs.FS, name string) string {
	f, err := disk.Open(name)
	if err != nil {
		return ""
	}
	p := make([]byte, 100)
	n, _ := f.ReadAt(p, 0)
	return string(p[:n])
}

// The removal of a directory is durable after SyncDir of its parent. Before, a crash may bring the directory
// back with what was in it; it never leaves a file without its directory.
func TestRemovedDirectoriesInACrash(t *testing.T) {
	disk := crashfs.New()
	must(t, disk.MkdirAll("/a/b"))
	put(t, disk, "/a/b/file", "text")
	must(t, vfs.SyncDir(disk, "/a/b"))
	must(t, disk.Remove("/a/b/file"))
	must(t, disk.RemoveDir("/a/b"))
	judge := func(image *crashfs.FS) string {
		_, err := image.ReadDir("/a/b")
		text := load2(image, "/a/b/file")
		if there := err == nil; !there && text != "" {
			t.Errorf("a file without its directory")
		} else if there {
			return "back, file " + text
		}
		return "gone"
	}
	seen := map[string]bool{}
	for _, image := range disk.Images(16, 1) {
		seen[judge(image)] = true
	}
	drawn := map[string]bool{}
	for seed := range uint64(64) {
		k := seed
		drawn[judge(disk.Image(crashfs.LoseSome, func() uint64 { k = k*6364136223846793005 + 1442695040888963407; return k >> 33 }))] = true
	}
	for _, have := range []map[string]bool{seen, drawn} {
		if !have["gone"] || !have["back, file text"] || !have["back, file "] || len(have) != 3 {
			t.Errorf("after a crash: %v, want gone, back with its file, and back without", have)
		}
	}
	again := disk.Image(crashfs.LoseNothing, nil)
	if _, err := again.ReadDir("/a/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the process died, and the directory is back: %v", err)
	}
	must(t, vfs.SyncDir(disk, "/a"))
	for d, image := range disk.Images(16, 1) {
		if judge(image) != "gone" {
			t.Errorf("after SyncDir of the parent the directory comes back: %v", d)
		}
	}
}

// A directory that is made again has nothing of the removed one in it, also after a crash: making it is
// durable at once.
func TestDirectoryMadeAgainIsEmpty(t *testing.T) {
	disk := crashfs.New()
	must(t, disk.MkdirAll("/a"))
	put(t, disk, "/a/file", "text")
	must(t, vfs.SyncDir(disk, "/a"))
	must(t, disk.Remove("/a/file"))
	must(t, disk.RemoveDir("/a"))
	must(t, disk.MkdirAll("/a"))
	put(t, disk, "/a/new", "text")
	for d, image := range disk.Images(16, 1) {
		names, err := image.ReadDir("/a")
		if err != nil || slices.Contains(names, "file") {
			t.Errorf("names %v, %v: %v", names, err, d)
		}
	}
}
