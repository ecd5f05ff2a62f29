package wal

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// checkSalvaged checks that each group is a prefix of what it was, that Holes names the missing entries,
// and that the log has amnesia.
func checkSalvaged(t *testing.T, l *Log, want twin) {
	t.Helper()
	if !l.Fence().Amnesia {
		t.Error("a salvaged log does not report amnesia")
	}
	lost := map[uint64]Hole{}
	for _, h := range l.Holes() {
		lost[h.Group] = h
	}
	for id, w := range want {
		g := l.Group(id)
		last := g.LastIndex()
		if last > w.last() || g.HardState().Term > w.hs.Term {
			t.Fatalf("group %d: last index %d of %d, term %d of %d", id, last, w.last(), g.HardState().Term, w.hs.Term)
		}
		prefix := groupState{hs: g.HardState(), start: w.start, entries: w.through(last)}
		if d := prefix.diff(l, id); d != "" {
			t.Fatal(d)
		}
		if h, ok := lost[id]; ok && (h.First != last+1 || h.Through > w.last() || h.Term > w.hs.Term) {
			t.Fatalf("group %d, which ended at %d of %d in term %d, has a hole %+v", id, last, w.last(), w.hs.Term, h)
		}
	}
}

// repair does what a host would do: it appends the missing entries, which a host gets from peers.
func repair(t *testing.T, l *Log, want twin) {
	t.Helper()
	for id, w := range want {
		last := l.Group(id).LastIndex()
		mustAppend(t, l, Write{Group: id, HardState: w.hs, Entries: w.entries[last-w.start.Index:]})
	}
	if err := l.CaughtUp(); err != nil {
		t.Fatal(err)
	}
}

// Whenever Open reports a spoiled byte, a salvage works, and after a repair the log is whole.
func TestSalvageEveryFlip(t *testing.T) {
	enumerates(t)
	store, want := smallStore(t)
	salvaged, holes := 0, 0
	for name, data := range store {
		if !strings.HasSuffix(name, record.SegmentSuffix) {
			continue
		}
		for i := range data {
			if raceEnabled && i%8 != 0 {
				continue
			}
			data[i] ^= 1 << (i % 8)
			fs := diskOf(t, store)
			data[i] ^= 1 << (i % 8)
			opts := testOptions(fs, &manual{})
			opts.SegmentBytes = 1024
			if _, err := Open(opts); !errors.Is(err, ErrCorrupt) {
				continue
			}
			opts.Salvage = true
			l, err := Open(opts)
			if err != nil {
				t.Fatalf("byte %d of %s: %v", i, name, err)
			}
			salvaged++
			holes += len(l.Holes())
			checkSalvaged(t, l, want)
			repair(t, l, want)
			fs.Crash(crashfs.LoseAll, nil)
			opts.Salvage = false
			l = mustOpen(t, opts)
			want.check(t, l)
			if l.Fence().Amnesia || l.Holes() != nil {
				t.Fatal("the log is repaired, and still not whole")
			}
		}
	}
	t.Logf("%d salvaged, with %d holes", salvaged, holes)
	if salvaged < 1000 && !raceEnabled || holes == 0 {
		t.Error("too few")
	}
}

// A salvage also works if segments are missing, swapped, zeroed or cut.
func TestSalvageDamagedDirectory(t *testing.T) {
	a, b := record.SegmentName(1), record.SegmentName(2)
	for name, spoil := range map[string]func(m map[string][]byte){
		"first missing":  func(m map[string][]byte) { delete(m, a) },
		"two missing":    func(m map[string][]byte) { delete(m, a); delete(m, b) },
		"middle missing": func(m map[string][]byte) { delete(m, b) },
		"first zeroed":   func(m map[string][]byte) { clear(m[a]) },
		"middle cut":     func(m map[string][]byte) { m[b] = m[b][:500] },
		"swapped":        func(m map[string][]byte) { m[a], m[b] = m[b], m[a] },
	} {
		t.Run(name, func(t *testing.T) {
			store, want := smallStore(t)
			spoil(store)
			fs := diskOf(t, store)
			opts := testOptions(fs, &manual{})
			opts.SegmentBytes, opts.Salvage = 1024, true
			l := mustOpen(t, opts)
			checkSalvaged(t, l, want)
			if len(l.Holes()) == 0 {
				t.Error("no hole")
			}
			repair(t, l, want)
			mustClose(t, l)
			opts.Salvage = false
			want.check(t, mustOpen(t, opts))
		})
	}
}

// The power fails at each operation of a salvage. After that the log is still corrupt, or has amnesia. It
// never looks whole.
func TestSalvageSurvivesCrashes(t *testing.T) {
	store, want := smallStore(t)
	store[record.SegmentName(2)][300] ^= 1
	for k := 0; ; k++ {
		fs := diskOf(t, store)
		opts := testOptions(fs.Mount(), &manual{})
		opts.SegmentBytes, opts.Salvage = 1024, true
		n, crashed := k, false
		rng := uint64(k)
		fs.SetHook(func(op crashfs.Op) error {
			if n--; n == -1 {
				fs.Crash(crashfs.LoseSome, func() uint64 { rng = rng*6364136223846793005 + 1442695040888963407; return rng >> 33 })
				crashed = true
				return errPower
			}
			return nil
		})
		_, err := Open(opts)
		if !crashed {
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d operations", k)
			return
		}
		fs.SetHook(nil)
		opts.FS, opts.Salvage = fs, false
		l, err := Open(opts)
		if errors.Is(err, ErrCorrupt) {
			opts.Salvage = true
			l, err = Open(opts)
		}
		if err != nil {
			t.Fatalf("crash at operation %d: %v", k, err)
		}
		checkSalvaged(t, l, want)
	}
}

// An error of the disk during a salvage is reported as such, neither as corruption nor as success.
func TestSalvageErrors(t *testing.T) {
	for segment, at := range map[uint64]int{2: 300, 3: 70} { // in the middle; and just after a full segment, so that the tail has no space
		store, want := smallStore(t)
		store[record.SegmentName(segment)][at] ^= 1
		for n := 1; ; n++ {
			f := &faulty{disk: diskOf(t, store), n: n, err: errDisk}
			opts := testOptions(f, &manual{})
			opts.SegmentBytes, opts.Salvage = 1024, true
			l, err := Open(opts)
			if !f.hit {
				break
			}
			if err != nil && !errors.Is(err, errDisk) {
				t.Fatalf("operation %d: %v", n, err)
			}
			if err == nil {
				checkSalvaged(t, l, want)
			}
		}
	}
}

// The data of an entry contains a valid header for the place where it is. Recovery must not take it for a
// record.
func TestDataThatLooksLikeARecord(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	l := mustOpen(t, opts)
	mustAppend(t, l, add(1, 2, 1))
	mustSync(t, l)
	data := make([]byte, 200)
	at := l.tail.seg.end + record.HeaderBytes
	record.PutHeader(data, record.Header{Kind: record.KindEntry, Group: 1, Index: 900, Term: 9, Durable: uint64(at)}, l.tail.seg.head.Seal(), at)
	mustAppend(t, l, Write{Group: 1, Entries: []raftpb.Entry{{Index: 2, Term: 1, Data: data}}})
	end := l.tail.seg.end
	f, err := fs.Open(testDir + "/" + record.SegmentName(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{1}, end-1); err != nil { // the last byte of the append is torn
		t.Fatal(err)
	}
	opts.FS = fs.Image(crashfs.LoseNothing, nil)
	if last := mustOpen(t, opts).Group(1).LastIndex(); last != 1 {
		t.Errorf("last index %d", last)
	}
}

// The segments of a log were removed by hand (or none was acceptable), but its spares, which were segments
// before, are still in the directory. A new log must not reuse their ids. Otherwise the old records in the
// spares would be valid again.
func TestIdsAreNotUsedAgain(t *testing.T) {
	for n := uint64(20); n < 140; n += 5 {
		fs, sched := crashfs.New(), &manual{}
		opts := testOptions(fs, sched)
		opts.SegmentBytes = 4 * vfs.BlockBytes // larger than the block that a new header overwrites
		l := mustOpen(t, opts)
		for i := uint64(1); i < n; i++ {
			mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: i}, Entries: entries(i, i+1, i, 500)}, Write{Group: 1, CompactThrough: i})
			mustSync(t, l)
			sched.runIdle()
		}
		mustClose(t, l)
		removeSegments(t, fs)
		opts.Salvage = true
		for range 4 {
			var err error
			if l, err = Open(opts); err != nil {
				t.Fatalf("opening the new log, after %d appends to the old one: %v", n, err)
			}
			opts.Salvage = false
			next := l.Group(2).LastIndex() + 1
			mustAppend(t, l, Write{Group: 2, Entries: entries(next, next+20, 1, 500)})
			mustSync(t, l)
			sched.runIdle()
			fs.Crash(crashfs.LoseAll, nil)
		}
	}
}

func removeSegments(t *testing.T, fs *crashfs.FS) {
	names, err := fs.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, record.SegmentSuffix) {
			if err := fs.Remove(testDir + "/" + name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A file that is larger than the largest possible segment is refused without reading it into memory.
func TestFileThatIsTooLarge(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	l := mustOpen(t, opts)
	mustAppend(t, l, add(1, 4, 1))
	mustClose(t, l)
	f, err := fs.Create(testDir + "/" + record.SegmentName(2))
	if err == nil {
		err = f.Truncate(1 << 60)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(opts); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "1152921504606846976 bytes") {
		t.Fatal(err)
	}
	if in, err := Inspect(t.Context(), InspectOptions{FS: fs, Dir: testDir}); err != nil || len(in.Findings) == 0 {
		t.Errorf("inspected: %v", err)
	}
}

// The error that an operator reads names commands that exist, and the directory that they need.
func TestCorruptionNamesWhatHelps(t *testing.T) {
	fs := longStory(t, 120, true)
	spoil(t, fs)
	_, err := Open(testOptions(fs, &manual{}))
	for _, want := range []string{"millrace wal verify " + testDir, "millrace wal repair " + testDir} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("have %v, want it to name %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "Options.") {
		t.Errorf("%v names an option that the operator of a host does not have", err)
	}
}

// Files with names that the log never gives. Open and Inspect refuse a segment whose id is too high for the
// index, and name the id. They leave a spare with an unknown name alone.
func TestNamesThatNoLogGives(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	l := mustOpen(t, opts)
	mustAppend(t, l, add(1, 4, 1))
	mustClose(t, l)
	create := func(name string) {
		f, err := fs.Create(testDir + "/" + name)
		if err == nil {
			err = errors.Join(f.Truncate(opts.SegmentBytes), f.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const theirs = "holiday.spare"
	create(theirs)
	mustClose(t, mustOpen(t, opts))
	if names, err := fs.ReadDir(testDir); err != nil || !slices.Contains(names, theirs) {
		t.Errorf("a foreign file is gone: %v, %v", names, err)
	}
	create(record.SegmentName(maxSegmentID + 1))
	if _, err := Open(opts); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "segment 4294967296, but the highest possible is 4294967295") {
		t.Errorf("have %v", err)
	}
	if in, err := Inspect(t.Context(), InspectOptions{FS: fs, Dir: testDir}); err != nil || len(in.Findings) == 0 {
		t.Errorf("inspected: %v", err)
	}
}
