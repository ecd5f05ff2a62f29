package crashfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

func create(t testing.TB, d vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := d.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t testing.TB, f vfs.File, off int64, p []byte) {
	t.Helper()
	if _, err := f.WriteAt(p, off); err != nil {
		t.Fatal(err)
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contents(t testing.TB, d vfs.FS, name string) []byte {
	t.Helper()
	f, err := d.Open(name)
	ok(t, err)
	size, err := f.Size()
	ok(t, err)
	p := make([]byte, size)
	_, err = f.ReadAt(p, 0)
	ok(t, err)
	return p
}

func TestCrashKillsHandlesAndLocks(t *testing.T) {
	d := crashfs.New()
	m := d.Mount()
	f := create(t, m, "/f")
	lock, err := m.Lock("/lock")
	ok(t, err)
	d.Crash(crashfs.LoseNothing, nil)
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, crashfs.ErrCrashed) {
		t.Errorf("write: %v", err)
	}
	if err := f.Sync(); !errors.Is(err, crashfs.ErrCrashed) {
		t.Errorf("sync: %v", err)
	}
	if err := lock.Close(); !errors.Is(err, crashfs.ErrCrashed) {
		t.Errorf("unlock: %v", err)
	}
	if _, err := m.Open("/f"); !errors.Is(err, crashfs.ErrCrashed) {
		t.Errorf("open by the dead process: %v", err)
	}
	if _, err := d.Mount().Lock("/lock"); err != nil {
		t.Errorf("lock after the crash: %v", err)
	}
}

func TestNamesNeedSyncDir(t *testing.T) {
	d := crashfs.New()
	ok(t, create(t, d, "/old").Sync())
	ok(t, vfs.SyncDir(d, "/"))
	ok(t, create(t, d, "/new").Sync())
	ok(t, d.Rename("/old", "/moved"))
	if names, _ := d.Image(crashfs.LoseAll, nil).ReadDir("/"); len(names) != 1 || names[0] != "old" {
		t.Errorf("lost all, found %v", names)
	}
	if names, _ := d.Image(crashfs.LoseNothing, nil).ReadDir("/"); len(names) != 2 || names[0] != "moved" {
		t.Errorf("lost nothing, found %v", names)
	}
	seen := map[string]bool{}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 100 {
		names, _ := d.Image(crashfs.LoseSome, rng.Uint64).ReadDir("/")
		s := ""
		for _, n := range names {
			s += n + " "
		}
		seen[s] = true
	}
	if len(seen) != 4 || !seen["old "] || !seen["new old "] || !seen["moved "] || !seen["moved new "] {
		t.Errorf("crashes leave %v", seen)
	}
}

// A torn write leaves each sector old or new, and nothing else.
func TestTornWrites(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	old, young := bytes.Repeat([]byte("o"), 4*crashfs.SectorBytes), bytes.Repeat([]byte("y"), 3*crashfs.SectorBytes)
	write(t, f, 0, old)
	ok(t, f.Sync())
	ok(t, vfs.SyncDir(d, "/"))
	write(t, f, 100, young)
	rng := rand.New(rand.NewPCG(2, 2))
	seen := map[string]bool{}
	for range 300 {
		got := contents(t, d.Image(crashfs.LoseSome, rng.Uint64), "/f")
		shape := ""
		for s := range 4 {
			sector := got[s*crashfs.SectorBytes : (s+1)*crashfs.SectorBytes]
			want := bytes.Clone(old[:crashfs.SectorBytes])
			lo, hi := 0, crashfs.SectorBytes
			if s == 0 {
				lo = 100
			}
			if s == 3 {
				hi = 100
			}
			copy(want[lo:hi], young)
			switch {
			case bytes.Equal(sector, want):
				shape += "y"
			case bytes.Equal(sector, old[:crashfs.SectorBytes]):
				shape += "o"
			default:
				t.Fatalf("sector %d is neither old nor new", s)
			}
		}
		seen[shape] = true
	}
	if len(seen) != 16 {
		t.Errorf("%d of 16 shapes were seen", len(seen))
	}
}

func TestFailedSyncIsNeverMadeGood(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	ok(t, vfs.SyncDir(d, "/"))
	write(t, f, 0, []byte("x"))
	d.SetHook(crashfs.FailNth(crashfs.OpSync, 1, syscall.EIO))
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	ok(t, f.Sync())
	if got := contents(t, d.Image(crashfs.LoseAll, nil), "/f"); len(got) != 0 {
		t.Errorf("survived: %q", got)
	}
}

func TestHookMayCrash(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	ok(t, vfs.SyncDir(d, "/"))
	d.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite {
			d.Crash(crashfs.LoseAll, nil)
		}
		return nil
	})
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, crashfs.ErrCrashed) {
		t.Error(err)
	}
	if got := contents(t, d, "/f"); len(got) != 0 {
		t.Errorf("a write of a dead handle arrived: %q", got)
	}
}

// The disk is compared with a naive twin that keeps whole files. A read returns what was written. A crash
// that loses all leaves the last synced contents. A crash that loses some leaves each byte in one of its
// versions since.
func TestTwin(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := crashfs.New()
		f := create(t, d, "/f")
		ok(t, vfs.SyncDir(d, "/"))
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 3))
		versions := [][]byte{nil} // versions[0] is durable
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			now := bytes.Clone(versions[len(versions)-1])
			grow := func(n int) {
				if n > len(now) {
					now = append(now, make([]byte, n-len(now))...)
				}
			}
			switch rng.IntN(6) {
			case 0:
				ok(t, f.Sync())
				versions = versions[len(versions)-1:]
				continue
			case 1:
				n := rng.IntN(12_000)
				ok(t, f.Truncate(int64(n)))
				grow(n)
				now = now[:n]
			case 2:
				off, n := rng.IntN(9000), rng.IntN(4000)
				ok(t, f.Preallocate(int64(off), int64(n)))
				grow(off + n)
			default:
				off, p := rng.IntN(9000), bytes.Repeat([]byte{byte(rng.IntN(3))}, 1+rng.IntN(3000))
				write(t, f, int64(off), p)
				grow(off + len(p))
				copy(now[off:], p)
			}
			versions = append(versions, now)
			if !bytes.Equal(contents(t, d, "/f"), now) {
				rt.Fatal("a read does not see what was written")
			}
		}
		if !bytes.Equal(contents(t, d.Image(crashfs.LoseAll, nil), "/f"), versions[0]) {
			rt.Fatal("losing all does not leave what was synced")
		}
		if !bytes.Equal(contents(t, d.Image(crashfs.LoseNothing, nil), "/f"), versions[len(versions)-1]) {
			rt.Fatal("losing nothing loses something")
		}
		seed := rng.Uint64()
		got := contents(t, d.Image(crashfs.LoseSome, rand.New(rand.NewPCG(seed, 4)).Uint64), "/f")
		if !bytes.Equal(got, contents(t, d.Image(crashfs.LoseSome, rand.New(rand.NewPCG(seed, 4)).Uint64), "/f")) {
			rt.Fatal("one seed gives two crashes")
		}
		size := false
		for _, v := range versions {
			size = size || len(v) == len(got)
		}
		if !size {
			rt.Fatalf("size %d was never there", len(got))
		}
		for i, b := range got {
			possible := false
			for _, v := range versions {
				possible = possible || i < len(v) && v[i] == b || i >= len(v) && b == 0
			}
			if !possible {
				rt.Fatalf("byte %d is %d, which it never was", i, b)
			}
		}
	})
}

// A worker that outlives a crash changes nothing after it, whatever it was doing: not even if the crash comes
// between two steps of one operation.
func TestMountIsDeadAfterACrash(t *testing.T) {
	for range 3000 {
		d := crashfs.New()
		old := d.Mount()
		begun, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			close(begun)
			for i := 0; ; i++ {
				if _, err := old.Create(fmt.Sprint("file", i)); err != nil {
					return
				}
			}
		}()
		<-begun
		d.Crash(crashfs.LoseAll, nil)
		names, err := d.ReadDir(".")
		if <-ended; err != nil {
			t.Fatal(err)
		}
		if later, _ := d.ReadDir("."); !slices.Equal(names, later) {
			t.Fatalf("after the crash there were %q, and then %q", names, later)
		}
	}
}
