package wal

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// TestFence checks which ends of a log leave amnesia, and in which mode (docs/internals/durability.md §7).
func TestFence(t *testing.T) {
	for _, row := range []struct {
		mode Mode
		end  string
		want bool
	}{
		{ModeGroup, "power cut", false},
		{ModeUnsafeOS, "close", false},
		{ModeUnsafeOS, "close, then power cut", false},
		{ModeUnsafeOS, "process dies", false},
		{ModeUnsafeOS, "process dies, then power cut", true},
		{ModeUnsafeOS, "power cut", true},
		{ModeUnsafeOS, "failed sync", true},
		{ModeGroup, "failed sync", false},
	} {
		t.Run(row.mode.String()+"/"+row.end, func(t *testing.T) {
			fs := crashfs.New()
			opts := testOptions(fs, &manual{})
			opts.Mode = row.mode
			l := mustOpen(t, opts)
			if l.Fence() != (Fence{Generation: 1}) {
				t.Errorf("at first %+v", l.Fence())
			}
			mustAppend(t, l, add(1, 4, 1))
			mustSync(t, l)
			for _, end := range strings.Split(row.end, ", then ") {
				switch end {
				case "close":
					mustClose(t, l)
				case "power cut":
					fs.Crash(crashfs.LoseAll, nil)
				case "process dies":
					fs.Crash(crashfs.LoseNothing, nil)
				case "failed sync":
					fs.SetHook(crashfs.FailNth(crashfs.OpSync, 1, errDisk))
					if err := l.Close(); err == nil {
						t.Error("closed")
					}
					fs.SetHook(nil)
				}
			}
			l = mustOpen(t, opts)
			if got := l.Fence(); got != (Fence{Generation: 2, Amnesia: row.want}) {
				t.Errorf("then %+v", got)
			}
			if !row.want {
				return
			}
			// Amnesia lasts until the caller ends it (CaughtUp), whatever the mode of the next life.
			mustClose(t, l)
			opts.Mode = ModeGroup
			l = mustOpen(t, opts)
			if got := l.Fence(); got != (Fence{Generation: 3, Amnesia: true}) {
				t.Errorf("after a close %+v", got)
			}
			mustAppend(t, l, add(1, 4, 2))
			if err := l.CaughtUp(); err != nil {
				t.Fatal(err)
			}
			fs.Crash(crashfs.LoseAll, nil)
			l = mustOpen(t, opts)
			if got := l.Fence(); got != (Fence{Generation: 4}) || l.Group(1).LastIndex() != 3 {
				t.Errorf("after CaughtUp and a power cut: %+v, last index %d", got, l.Group(1).LastIndex())
			}
		})
	}
}

// bootless is a machine that does not know its boot id. After any restart of the process it may have
// rebooted.
type bootless struct {
	vfs.FS
	err error
}

func (b bootless) BootID() (string, error) { return "", b.err }

func TestFenceWithoutBootID(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(bootless{FS: fs}, &manual{})
	opts.Mode = ModeUnsafeOS
	mustOpen(t, opts)
	fs.Crash(crashfs.LoseNothing, nil)
	var events []Event
	opts.Events = func(e Event) { events = append(events, e) }
	if l := mustOpen(t, opts); !l.Fence().Amnesia {
		t.Error("the log trusts a boot that it does not know")
	}
	if want := []Event{AmnesiaFound{Dir: testDir, Generation: 1}}; !slices.Equal(events, want) {
		t.Errorf("events %+v, want %+v", events, want)
	}
	fs.Crash(crashfs.LoseNothing, nil)
	opts.FS = bootless{FS: fs, err: errDisk}
	if _, err := Open(opts); !errors.Is(err, errDisk) {
		t.Error(err)
	}
}

func TestFenceIsChecked(t *testing.T) {
	want := fence{version: fenceVersion, flags: flagDirty | flagMade, generation: 7, boot: "0123", log: record.LogID{1, 15: 2}, owner: 9, end: record.End{Segment: 3, Offset: 4096, Chain: 5}}
	good := want.encode()
	if f, err := decodeFence(good, "F"); err != nil || f != want {
		t.Errorf("%+v, %v", f, err)
	}
	for i := range good {
		bad := append([]byte(nil), good...)
		bad[i] ^= 4
		if _, err := decodeFence(bad, "F"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	for n := range good {
		if _, err := decodeFence(good[:n], "F"); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	newer := readGolden(t, "fence-newer.hex")
	if _, err := decodeFence(newer, "F"); !errors.Is(err, ErrVersion) {
		t.Error(err)
	}
	checkGolden(t, "fence2.hex", "A copy in the file FENCE, version 2: dirty, made, generation 7, boot 0123, host 9; it ends in segment 3 at 4096.", good)
	if f, err := decodeFence(readGolden(t, "fence.hex"), "F"); err != nil || f != (fence{version: 1, flags: flagDirty, generation: 7, boot: "0123"}) {
		t.Errorf("of version 1: %+v, %v", f, err)
	}
}

// TestFenceCopies checks which copy is read from a FENCE that a crash between the copies left, that is
// spoiled, or that an older program wrote.
func TestFenceCopies(t *testing.T) {
	old, now := fence{version: fenceVersion, generation: 7}, fence{version: fenceVersion, generation: 8, flags: flagAmnesia}
	oldest, first := readGolden(t, "fence.hex"), fence{version: 1, flags: flagDirty, generation: 7, boot: "0123"}
	torn := make([]byte, fenceBytes)
	spoilt := bytes.Clone(oldest)
	spoilt[9] ^= 4
	file := func(a, b []byte) []byte {
		p := make([]byte, fenceCopies*fenceBlock)
		copy(p, a)
		copy(p[fenceBlock:], b)
		return p
	}
	for _, row := range []struct {
		name     string
		contents []byte
		want     fence
		from     int
		err      error
	}{
		{"at rest", file(now.encode(), now.encode()), now, 0, nil},
		{"crash in the second copy, which comes first", file(old.encode(), torn), old, 0, nil},
		{"crash between the copies", file(old.encode(), now.encode()), old, 0, nil},
		{"crash in the first copy", file(torn, now.encode()), now, 1, nil},
		{"both spoiled", file(torn, torn), fence{}, noCopy, ErrCorrupt},
		{"a newer version", file(readGolden(t, "fence-newer.hex"), torn), fence{}, 0, ErrVersion},
		{"version 1, as it was written once", oldest, first, noCopy, nil},
		{"version 1, spoiled", spoilt, fence{}, noCopy, ErrCorrupt},
		{"version 1, two copies", file(oldest, oldest), first, 0, nil},
		{"crash while version 1 is written over", file(oldest, now.encode()), first, 0, nil},
		{"one copy of version 2", old.encode(), fence{}, noCopy, ErrCorrupt},
		{"cut short", file(old.encode(), nil)[:fenceBlock], fence{}, noCopy, ErrCorrupt},
	} {
		if f, from, err := chooseFence(row.contents, "F"); f != row.want || from != row.from || !errors.Is(err, row.err) {
			t.Errorf("%s: %+v of copy %d, %v", row.name, f, from, err)
		}
	}
}

// The power is cut during a write or sync of Open, and again during the next Open. The generation must only
// rise, and amnesia must stay.
func TestFenceSurvivesCrashesOfItsOwn(t *testing.T) {
	for first := 1; first <= 4; first++ {
		for second := 1; second <= 4; second++ {
			fs := crashfs.New()
			opts := testOptions(fs, &manual{})
			opts.Mode = ModeUnsafeOS
			mustOpen(t, opts)
			for _, n := range []int{first, second} {
				fs.Crash(crashfs.LoseAll, nil)
				fs.SetHook(crashfs.FailNth([]crashfs.OpKind{crashfs.OpWrite, crashfs.OpSync}[n%2], (n+1)/2, errDisk))
				if _, err := Open(opts); !errors.Is(err, errDisk) {
					t.Fatalf("operation %d: %v", n, err)
				}
				fs.SetHook(nil)
			}
			fs.Crash(crashfs.LoseAll, nil)
			l, err := Open(opts)
			if err != nil {
				t.Fatalf("crashes at %d and %d: %v", first, second, err)
			}
			if got := l.Fence(); got.Generation < 2 || !got.Amnesia {
				t.Errorf("crashes at %d and %d: %+v", first, second, got)
			}
		}
	}
}

// A process in an unsafe mode dies, the machine does not, and the log is opened in a mode that keeps Raft's
// promise. What counted is only in the kernel's memory until recovery has written it again. A power cut at
// any moment of the recovery must leave everything that counted, or amnesia.
func TestFenceOutlivesTheRecovery(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.Mode = ModeUnsafeOS
	l := mustOpen(t, opts)
	mustAppend(t, l, add(1, 4, 1))
	mustSync(t, l)
	fs.Crash(crashfs.LoseNothing, nil)
	opts.Mode = ModeGroup
	looked, kept, forgot := 0, 0, 0
	look := func(op crashfs.Op) error {
		for what, image := range fs.Images(64, 1) {
			looked++
			again := mustOpen(t, testOptions(image, &manual{}))
			switch whole := again.Group(1).LastIndex() == 3; {
			case whole:
				kept++
			case again.Fence().Amnesia:
				forgot++
			default:
				t.Errorf("a power cut before %s that left %s: the last index is %d of 3, without amnesia", op, what, again.Group(1).LastIndex())
			}
		}
		return nil
	}
	fs.SetHook(look)
	l = mustOpen(t, opts)
	fs.SetHook(nil)
	if kept == 0 || forgot == 0 {
		t.Errorf("of %d crashes %d kept everything and %d left amnesia: the test looks at the wrong moments", looked, kept, forgot)
	}
	if l.Fence().Amnesia || l.fence.now.flags != flagMade || l.Group(1).LastIndex() != 3 {
		t.Errorf("after the recovery the fence is %+v, the last index %d", l.fence.now, l.Group(1).LastIndex())
	}
}

// When a safe mode has recovered the log of an unsafe one, it clears the dirty flag. If there is no space for
// that, the flag stays, and the next power cut causes amnesia. Open returns any other error.
func TestDirtyThatCannotBeCleared(t *testing.T) {
	for _, row := range []struct {
		err, want error
	}{{errNoSpace, nil}, {errDisk, errDisk}} {
		fs := crashfs.New()
		opts := testOptions(fs, &manual{})
		opts.Mode = ModeUnsafeOS
		mustAppend(t, mustOpen(t, opts), add(1, 4, 1))
		fs.Crash(crashfs.LoseNothing, nil)
		opts.Mode = ModeGroup
		writes := 0
		fs.SetHook(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpWrite && strings.HasSuffix(op.Name, fenceName) {
				if writes++; writes > fenceCopies { // the first writes store the generation
					return row.err
				}
			}
			return nil
		})
		l, err := Open(opts)
		if !errors.Is(err, row.want) {
			t.Errorf("%v: have %v, want %v", row.err, err, row.want)
		}
		if err == nil && l.fence.now.flags != flagDirty|flagMade|flagPowerCut {
			t.Errorf("%v: the fence is %+v, want it dirty", row.err, l.fence.now)
		}
	}
}

// Only a salvage replaces a fence that is spoiled or deleted. The new fence has the log's id, a generation
// above all generations in the segments, and amnesia.
func TestFenceIsMadeAnew(t *testing.T) {
	for name, lose := range map[string]func(fs *crashfs.FS) error{
		"deleted": func(fs *crashfs.FS) error { return fs.Remove(testDir + "/" + fenceName) },
		"both copies spoiled": func(fs *crashfs.FS) error {
			return errors.Join(fs.FlipBit(testDir+"/"+fenceName, 20, 3), fs.FlipBit(testDir+"/"+fenceName, fenceBlock+20, 3))
		},
	} {
		fs := crashfs.New()
		opts := testOptions(fs, &manual{})
		l := mustOpen(t, opts)
		mustAppend(t, l, add(1, 4, 1))
		mustClose(t, l)
		for range 3 { // only the watermark records of Close name these generations
			mustClose(t, mustOpen(t, opts))
		}
		if err := lose(fs); err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptError
		if _, err := Open(opts); !errors.As(err, &corrupt) || !strings.HasSuffix(corrupt.File, fenceName) {
			t.Errorf("%s: have %v", name, err)
		}
		opts.Salvage = true
		again := mustOpen(t, opts)
		if got := again.Fence(); got != (Fence{Generation: 5, Amnesia: true, LacksTerms: true}) || again.ID() != l.ID() || again.Group(1).LastIndex() != 3 {
			t.Errorf("%s: %+v, log %x, was %x, last index %d", name, got, again.ID(), l.ID(), again.Group(1).LastIndex())
		}
	}
}
