package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"
)

// contents returns the files of a directory.
func contents(t *testing.T, fsys FS, dir string) map[string]string {
	t.Helper()
	names, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for _, name := range names {
		f, err := fsys.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, size)
		if n, err := f.ReadAt(b, 0); n != len(b) || err != nil && !errors.Is(err, io.EOF) {
			t.Fatalf("%s: %d of %d, %v", name, n, size, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		m[name] = string(b)
	}
	return m
}

// An overlay shows what a copy of the filesystem below would show after the same changes, and does not change
// what is below.
func TestOverlayIsACopy(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		copied := Memory()
		random := func(n int) []byte {
			b := make([]byte, n)
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			return b
		}
		for i := range 3 {
			data := random(rng.IntN(60_000))
			for _, fsys := range []FS{OS(), copied} {
				f, err := fsys.Create(filepath.Join(dir, fmt.Sprint(i)))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.WriteAt(data, 0); err != nil {
					t.Fatal(err)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		below := contents(t, OS(), dir)
		overlay := NewOverlay(OS())
		both := func(what string, do func(FS) error) {
			a, b := do(overlay), do(copied)
			if (a == nil) != (b == nil) {
				t.Fatalf("seed %d: %s: %v in the overlay, %v in the copy", seed, what, a, b)
			}
		}
		for range 30 {
			name := filepath.Join(dir, fmt.Sprint(rng.IntN(5)))
			other := filepath.Join(dir, fmt.Sprint(rng.IntN(5)))
			data, off, op := random(rng.IntN(20_000)), rng.Int64N(60_000), rng.IntN(8)
			both(fmt.Sprint(op, " ", name), func(fsys FS) error {
				switch op {
				case 0:
					f, err := fsys.Create(name)
					if err != nil {
						return err
					}
					return f.Close()
				case 1:
					return fsys.Rename(name, other)
				case 2:
					return fsys.Remove(name)
				case 7:
					return fsys.Link(name, other)
				}
				f, err := fsys.Open(name)
				if err != nil {
					return err
				}
				switch op {
				case 3:
					err = f.Truncate(off)
				case 4:
					err = f.Preallocate(0, off)
				default:
					_, err = f.WriteAt(data, off)
				}
				return errors.Join(err, f.Sync(), f.Close())
			})
			if a, b := contents(t, overlay, dir), contents(t, copied, dir); fmt.Sprint(len(a)) != fmt.Sprint(len(b)) {
				t.Fatalf("seed %d: %d files in the overlay, %d in the copy", seed, len(a), len(b))
			} else {
				for name := range b {
					if !bytes.Equal([]byte(a[name]), []byte(b[name])) {
						t.Fatalf("seed %d: %s differs", seed, name)
					}
				}
			}
		}
		if after := contents(t, OS(), dir); fmt.Sprint(after) != fmt.Sprint(below) {
			t.Fatalf("seed %d: the overlay changed what is below", seed)
		}
		if len(overlay.Changes()) == 0 {
			t.Errorf("seed %d: no change is told", seed)
		}
	}
}

// Nothing is written through a read-only view.
func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	f, err := OS().Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("text"), 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	view := ReadOnly(OS())
	r, err := view.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, create := view.Create(name + "2")
	_, direct := view.OpenDirect(name)
	_, lock := view.Lock(name)
	_, write := r.WriteAt([]byte("x"), 0)
	for what, err := range map[string]error{
		"create": create, "direct": direct, "lock": lock, "write": write, "rename": view.Rename(name, name+"2"), "remove": view.Remove(name),
		"link": view.Link(name, name+"2"), "rmdir": view.RemoveDir(dir),
		"mkdir": view.MkdirAll(filepath.Join(dir, "sub")), "syncdir": SyncDir(view, dir), "sync": r.Sync(), "truncate": r.Truncate(0), "preallocate": r.Preallocate(0, 9),
	} {
		if !errors.Is(err, syscall.EROFS) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if have := contents(t, view, dir); len(have) != 1 || have["file"] != "text" {
		t.Errorf("%v", have)
	}
	if _, err := view.Open(name + "3"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// Held sees a held lock and its holder without touching it.
func TestHeld(t *testing.T) {
	name := filepath.Join(t.TempDir(), "LOCK")
	if h, err := Held(OS(), name); err == nil && h.Held || err != nil && !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("no file: %+v, %v", h, err)
	}
	l, err := OS().Lock(name)
	if err != nil {
		t.Fatal(err)
	}
	if h, err := Held(ReadOnly(OS()), name); err == nil && (!h.Held || h.PID == 0) {
		t.Errorf("held: %+v", h)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if h, err := Held(OS(), name); err == nil && h.Held {
		t.Errorf("after the release: %+v", h)
	}
	if _, err := Held(Memory(), name); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}
