package crashfs_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

func TestWhenSelects(t *testing.T) {
	for _, row := range []struct {
		when crashfs.When
		want []int // which of ten writes, to /a.wal and /b.txt in turn, fail
	}{
		{crashfs.When{Kind: crashfs.OpWrite, Nth: 3}, []int{3}},
		{crashfs.When{Kind: crashfs.OpWrite, Nth: 3, Times: 2}, []int{3, 4}},
		{crashfs.When{Kind: crashfs.OpWrite, Name: "*.wal", Nth: 2}, []int{3}},
		{crashfs.When{Kind: crashfs.OpWrite, Name: "b.*"}, []int{2, 4, 6, 8, 10}},
		{crashfs.When{Kind: crashfs.OpWrite, Name: "["}, nil},
		{crashfs.When{Kind: crashfs.OpSync}, nil},
	} {
		d := crashfs.New()
		a, b := create(t, d, "/a.wal"), create(t, d, "/b.txt")
		d.SetHook(row.when.Do(syscall.EIO))
		var failed []int
		for i := 1; i <= 10; i++ {
			f := a
			if i%2 == 0 {
				f = b
			}
			if _, err := f.WriteAt([]byte("x"), 0); errors.Is(err, syscall.EIO) {
				failed = append(failed, i)
			}
		}
		if !slices.Equal(failed, row.want) {
			t.Errorf("%+v: %v failed, want %v", row.when, failed, row.want)
		}
	}
}

// The first hook that returns an error decides. The hooks before it are called too, those after it are not.
func TestHooksAreAskedInOrder(t *testing.T) {
	d := crashfs.New()
	heard := 0
	d.SetHook(crashfs.Hooks(
		crashfs.When{Kind: crashfs.OpWrite}.Call(func(crashfs.Op) { heard++ }),
		crashfs.When{Kind: crashfs.OpWrite, Nth: 2}.Do(syscall.EIO),
		crashfs.When{Kind: crashfs.OpWrite, Nth: 2}.Do(syscall.ENOSPC),
	))
	f := create(t, d, "/f")
	var got []string
	for range 4 {
		_, err := f.WriteAt([]byte("x"), 0)
		got = append(got, fmt.Sprint(errors.Is(err, syscall.EIO), errors.Is(err, syscall.ENOSPC)))
	}
	if want := []string{"false false", "true false", "false true", "false false"}; !slices.Equal(got, want) || heard != 4 {
		t.Errorf("writes %v, want %v; heard of %d", got, want, heard)
	}
}

func TestEffectsOnWrites(t *testing.T) {
	for _, row := range []struct {
		name   string
		effect error
		n      int
		err    error
		left   string
	}{
		{"lie", crashfs.Lie, 4, nil, "........"},
		{"short with an error", crashfs.Short(3, syscall.EIO), 3, syscall.EIO, "..abc..."},
		{"short without one", crashfs.Short(1, nil), 1, nil, "..a....."},
		{"short by nothing", crashfs.Short(9, nil), 4, nil, "..abcd.."},
		{"flip", crashfs.Flip(1, 0), 4, nil, "..accd.."},
		{"flip counted from the end", crashfs.Flip(-1, 5), 4, nil, "..abcD.."},
		{"misdirect", crashfs.Misdirect(-2), 4, nil, "abcd...."},
		{"misdirect off the disk", crashfs.Misdirect(-3), 4, nil, "........"},
	} {
		d := crashfs.New()
		f := create(t, d, "/f")
		write(t, f, 0, []byte("........"))
		d.SetHook(crashfs.When{Kind: crashfs.OpWrite}.Do(row.effect))
		p := []byte("abcd")
		n, err := f.WriteAt(p, 2)
		if n != row.n || !errors.Is(err, row.err) {
			t.Errorf("%s: %d, %v", row.name, n, err)
		}
		if got := contents(t, d, "/f"); string(got) != row.left {
			t.Errorf("%s leaves %q, want %q", row.name, got, row.left)
		}
		if string(p) != "abcd" {
			t.Errorf("%s changed the caller's bytes to %q", row.name, p)
		}
	}
}

func TestEffectsOnReads(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	write(t, f, 0, []byte("abcdef"))
	p := make([]byte, 4)
	d.SetHook(crashfs.When{Kind: crashfs.OpRead, Nth: 1}.Do(crashfs.Flip(2, 1)))
	if n, err := f.ReadAt(p, 1); n != 4 || err != nil || string(p) != "bcfe" {
		t.Errorf("a flip in flight: %d, %v, %q", n, err, p)
	}
	if _, err := f.ReadAt(p, 1); err != nil || string(p) != "bcde" {
		t.Errorf("the flip has changed the medium: %v, %q", err, p)
	}
	d.SetHook(crashfs.When{Kind: crashfs.OpRead}.Do(crashfs.Short(2, nil)))
	if n, err := f.ReadAt(p, 0); n != 2 || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short read: %d, %v", n, err)
	}
	d.SetHook(crashfs.When{Kind: crashfs.OpRead}.Do(crashfs.Lie))
	if _, err := f.ReadAt(p, 0); err == nil || !strings.Contains(err.Error(), "does not apply") {
		t.Errorf("a read cannot lie: %v", err)
	}
	d.SetHook(crashfs.When{Kind: crashfs.OpRemove}.Do(crashfs.Lie))
	if err := d.Remove("/f"); err == nil || !strings.Contains(err.Error(), "a lie, which") {
		t.Errorf("a removal cannot lie: %v", err)
	}
}

// A sync that lies keeps nothing, and the next honest one keeps everything.
func TestLyingSyncs(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	write(t, f, 0, []byte("x"))
	d.SetHook(crashfs.Hooks(crashfs.When{Kind: crashfs.OpSync, Nth: 1}.Do(crashfs.Lie), crashfs.When{Kind: crashfs.OpSyncDir, Nth: 1}.Do(crashfs.Lie)))
	ok(t, f.Sync())
	ok(t, vfs.SyncDir(d, "/"))
	if n := d.Pending(); n != 3 { // the name, the length and a sector
		t.Errorf("after two lies %d changes are pending, want 3", n)
	}
	ok(t, f.Sync())
	ok(t, vfs.SyncDir(d, "/"))
	if n := d.Pending(); n != 0 {
		t.Errorf("after the truth %d changes are pending", n)
	}
}

// After a failed sync the kernel treats earlier writes as clean. Only what is written again becomes durable,
// in whole sectors.
func TestWhatAFailedSyncForgetsMustBeWrittenAgain(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	ok(t, vfs.SyncDir(d, "/"))
	write(t, f, 0, sectorsOf("...."))
	ok(t, f.Sync())
	write(t, f, 0, sectorsOf("abcd"))
	d.SetHook(crashfs.FailNth(crashfs.OpSync, 1, syscall.EIO))
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	d.Crash(crashfs.LoseNothing, nil) // the process dies; a new one reads what the kernel still has
	if got := shape(t, d); got != "f:abcd" {
		t.Errorf("read %s", got)
	}
	f, err := d.Open("/f")
	ok(t, err)
	write(t, f, crashfs.SectorBytes+5, sectorsOf("b")[:10])
	ok(t, f.Sync())
	if got := shape(t, d.Image(crashfs.LoseAll, nil)); got != "f:.b.." {
		t.Errorf("one sector was written again, and a crash leaves %s", got)
	}
	seen := map[string]bool{}
	for _, s := range shapes(t, d, 100) {
		seen[s] = true
	}
	if len(seen) != 8 || !seen["f:ab.d"] || seen["f:a.cd"] {
		t.Errorf("crashes leave %v", seen)
	}
	write(t, f, 0, sectorsOf("abcd"))
	ok(t, f.Sync())
	if got := shape(t, d.Image(crashfs.LoseAll, nil)); got != "f:abcd" || d.Pending() != 0 {
		t.Errorf("all was written again, and a crash leaves %s", got)
	}
}

// A sync that hangs returns when it is released. If the power failed meanwhile, it has kept nothing.
func TestHungSync(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	ok(t, vfs.SyncDir(d, "/"))
	write(t, f, 0, []byte("x"))
	until, asked := make(chan struct{}), make(chan struct{})
	d.SetHook(crashfs.When{Kind: crashfs.OpSync, Nth: 1}.Call(func(op crashfs.Op) {
		close(asked)
		_ = crashfs.When{Kind: crashfs.OpSync}.Hang(until)(op) // Hang answers nil
	}))
	var done sync.WaitGroup
	var err error
	done.Go(func() { err = f.Sync() })
	<-asked
	write(t, f, 1, []byte("y")) // the disk goes on
	d.Crash(crashfs.LoseAll, nil)
	close(until)
	done.Wait()
	if !errors.Is(err, crashfs.ErrCrashed) {
		t.Errorf("the hung sync: %v", err)
	}
	if got := contents(t, d, "/f"); len(got) > 0 {
		t.Errorf("it kept %q", got)
	}
}

func TestFullDisk(t *testing.T) {
	d := crashfs.New()
	d.SetCapacity(3 * 4096)
	a, b := create(t, d, "/a"), create(t, d, "/b")
	ok(t, a.Preallocate(0, 5000))
	if n := d.UsedBytes(); n != 8192 {
		t.Errorf("%d bytes used, want 8192", n)
	}
	if err := b.Preallocate(0, 5000); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("preallocate: %v", err)
	}
	if err := b.Truncate(5000); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("truncate: %v", err)
	}
	if size, err := b.Size(); size != 0 || err != nil {
		t.Errorf("what did not fit left a length of %d, %v", size, err)
	}
	n, err := b.WriteAt(bytes.Repeat([]byte("x"), 5000), 100)
	if n != 3996 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write: %d, %v", n, err)
	}
	if n, err := b.WriteAt([]byte("y"), 1<<20); n != 0 || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write beyond the end: %d, %v", n, err)
	}
	write(t, a, 0, bytes.Repeat([]byte("x"), 8192)) // it has that space
	ok(t, d.Remove("/a"))
	write(t, b, 100, bytes.Repeat([]byte("x"), 5000))
	d.SetCapacity(1 << 20)
	ok(t, b.Preallocate(0, 1<<20))
	image := d.Image(crashfs.LoseNothing, nil)
	if f, err := image.Open("/b"); err != nil || !errors.Is(f.Preallocate(0, 2<<20), syscall.ENOSPC) {
		t.Error("an image has space that its disk did not have")
	}
	d.SetCapacity(0)
	ok(t, b.Preallocate(0, 1<<30))
}

func TestFlipBitAtRest(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	write(t, f, 0, []byte("abc"))
	ok(t, f.Sync())
	ok(t, vfs.SyncDir(d, "/"))
	write(t, f, 2, []byte("C"))
	ok(t, d.FlipBit("/f", 0, 1))
	if got := contents(t, d, "/f"); string(got) != "cbC" {
		t.Errorf("read %q", got)
	}
	if got := contents(t, d.Image(crashfs.LoseAll, nil), "/f"); string(got) != "cbc" {
		t.Errorf("after a crash %q", got)
	}
	for _, bad := range []error{d.FlipBit("/none", 0, 0), d.FlipBit("/f", 3, 0), d.FlipBit("/f", -1, 0)} {
		if bad == nil {
			t.Error("a flip beyond the file is accepted")
		}
	}
}

// One seed gives one sequence of faults, and each kind of fault happens.
func TestOdds(t *testing.T) {
	odds := crashfs.Odds{ReadError: 5, ReadFlip: 5, WriteError: 9, ShortWrite: 9, WriteFlip: 9, LostWrite: 9, Misdirected: 9, SyncError: 5,
		LyingSync: 5, LyingSyncDir: 5, NoSpace: 5, NameError: 5, OpenError: 5, TruncateError: 5}
	ops := []crashfs.Op{{Kind: crashfs.OpRead, Len: 9}, {Kind: crashfs.OpWrite, Len: 9}, {Kind: crashfs.OpSync}, {Kind: crashfs.OpSyncDir}, {Kind: crashfs.OpCreate},
		{Kind: crashfs.OpPreallocate}, {Kind: crashfs.OpRename}, {Kind: crashfs.OpOpen}, {Kind: crashfs.OpTruncate}, {Kind: crashfs.OpReadDir}}
	history := func(seed uint64) (all []string, kinds map[string]bool) {
		hook, kinds := odds.Hook(seed), map[string]bool{}
		for i := range 2000 {
			op := ops[i%len(ops)]
			err := hook(op)
			all = append(all, fmt.Sprintf("%v", err))
			if err != nil {
				kinds[op.Kind.String()+": "+err.Error()] = true
			}
		}
		return all, kinds
	}
	first, kinds := history(1)
	if again, _ := history(1); !slices.Equal(first, again) {
		t.Error("one seed, two histories")
	}
	if other, _ := history(2); slices.Equal(first, other) {
		t.Error("two seeds, one history")
	}
	if len(kinds) < 17 {
		t.Errorf("%d kinds of faults: %v", len(kinds), kinds)
	}
	none := crashfs.Odds{}.Hook(1)
	for _, op := range ops {
		if err := none(op); err != nil {
			t.Errorf("without odds: %v", err)
		}
	}
}
