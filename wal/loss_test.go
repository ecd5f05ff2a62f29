package wal

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// A repair crashes between its two renames: the damaged segment is already renamed, and the copy of its
// valid part does not have its name yet. This log is not whole, because it lacks the copy. The next repair
// continues where the first one ended.
func TestSalvageIsFinished(t *testing.T) {
	store, want := smallStore(t)
	store[record.SegmentName(2)][300] ^= 1
	opts := testOptions(diskOf(t, store), &manual{})
	opts.SegmentBytes, opts.Salvage = 1024, true
	l := mustOpen(t, opts)
	last := map[uint64]uint64{}
	for id := range want {
		last[id] = l.Group(id).LastIndex()
	}

	fs := diskOf(t, store)
	opts.FS = fs
	fs.SetHook(crashfs.When{Kind: crashfs.OpRename, Name: "SALVAGE.new"}.Do(errDisk))
	if _, err := Open(opts); !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	fs.SetHook(nil)
	fs.Crash(crashfs.LoseAll, nil)
	opts.Salvage = false
	if _, err := Open(opts); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "SALVAGE.new") {
		t.Errorf("a repair was cut off: have %v, want a refusal that names SALVAGE.new", err)
	}
	in := mustInspect(t, fs)
	if in.worst() != Damaged || in.Findings[0].Rule != "R8" {
		t.Errorf("a repair was cut off: inspected %+v, want a finding of rule R8", in.Findings)
	}
	if r, err := repairLog(t, fs, true); err != nil || !r.Done {
		t.Fatalf("%+v, %v", r, err)
	}
	l = mustOpen(t, opts)
	checkSalvaged(t, l, want)
	for id := range want {
		if have := l.Group(id).LastIndex(); have != last[id] {
			t.Errorf("group %d ends at %d after a repair that was cut off, at %d after one that was not", id, have, last[id])
		}
	}
}

func acceptLoss(t testing.TB, fs vfs.FS) *Repair {
	t.Helper()
	r, err := RepairLog(t.Context(), RepairOptions{InspectOptions: InspectOptions{FS: fs, Dir: testDir}, Write: true, AcceptLoss: true})
	if err != nil || !r.Done {
		t.Fatalf("%+v, %v", r, err)
	}
	return r
}

// The entries that a repair gave up are named again later: when the log is opened, and when the operator
// accepts the loss.
func TestLossIsRemembered(t *testing.T) {
	fs := longStory(t, 120, true)
	spoil(t, fs)
	r, err := repairLog(t, fs, true)
	if err != nil || !r.Done || len(r.Losses) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	l := mustOpen(t, testOptions(fs, &manual{}))
	for _, loss := range r.Losses {
		i := slices.IndexFunc(l.Holes(), func(h Hole) bool { return h.Group == loss.Group })
		if n := len(loss.Lost); i < 0 || n > 0 && (l.Holes()[i].First != loss.Through+1 || l.Holes()[i].Through != loss.Lost[n-1].Last) {
			t.Errorf("a repaired log has the holes %+v, want one of %+v", l.Holes(), loss)
		}
	}
	mustClose(t, l)
	again := acceptLoss(t, fs)
	for i, loss := range r.Losses {
		if n := len(loss.Lost); i >= len(again.Losses) || again.Losses[i].Group != loss.Group || n > 0 && again.Losses[i].Lost[0].Last != loss.Lost[n-1].Last || loss.StateLost && !again.Losses[i].StateLost {
			t.Errorf("the loss that is accepted is %+v, want what the repair lost: %+v", again.Losses, loss)
		}
	}
	if in := mustInspect(t, fs); len(in.Missing) > 0 || len(mustOpen(t, testOptions(fs, &manual{})).Holes()) > 0 {
		t.Errorf("an accepted loss is remembered: %+v", in.Missing)
	}
}

// If the file LOSS is spoiled, an inspection and a repair report that the loss is unknown, and the log
// still has amnesia.
func TestSpoiledLossIsTold(t *testing.T) {
	fs := longStory(t, 120, true)
	spoil(t, fs)
	if _, err := repairLog(t, fs, true); err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open(testDir + "/" + lossName)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xEE}, 30); err != nil {
		t.Fatal(err)
	}
	if in := mustInspect(t, fs); !in.MissingUnknown {
		t.Error("an inspection does not say that it cannot tell what is missing")
	}
	l := mustOpen(t, testOptions(fs, &manual{}))
	if !l.Fence().Amnesia {
		t.Error("the log may vote")
	}
	mustClose(t, l)
	if r := acceptLoss(t, fs); !r.LossUnknown {
		t.Errorf("%+v, want a loss that is not known", r)
	}
}

// A repair also renames the whole segments after the damaged one. Their names tell them apart from damaged
// ones, and the log does not reuse their ids.
func TestSegmentsBehindDamageAreToldApart(t *testing.T) {
	fs := longStory(t, 120, true)
	names := segmentNames(t, fs)
	spoil(t, fs) // the middle one
	if _, err := repairLog(t, fs, true); err != nil {
		t.Fatal(err)
	}
	after := slices.Collect(maps.Keys(files(t, fs)))
	for i, name := range names[len(names)/2:] {
		suffix := ".behind"
		if i == 0 {
			suffix = ".damaged"
		}
		kept := slices.ContainsFunc(after, func(n string) bool { return strings.HasPrefix(n, name+".") && strings.HasSuffix(n, suffix) })
		if !kept {
			t.Errorf("%s is not kept as %s*%s: %v", name, name, suffix, after)
		}
	}
	last, _ := record.ParseSegmentName(names[len(names)-1])
	if id := maxID(after); id < last {
		t.Errorf("the highest id is %d, want at least %d, the id of a renamed segment", id, last)
	}
}

// Errors of CaughtUp are final, also that of removing the file LOSS.
func TestLossThatCannotBeRemoved(t *testing.T) {
	for _, kind := range []crashfs.OpKind{crashfs.OpRemove, crashfs.OpSyncDir} {
		store, _ := smallStore(t)
		store[record.SegmentName(2)][300] ^= 1
		fs := diskOf(t, store)
		opts := testOptions(fs, &manual{})
		opts.SegmentBytes, opts.Salvage = 1024, true
		l := mustOpen(t, opts)
		fs.SetHook(func(op crashfs.Op) error {
			if op.Kind == kind {
				return errDisk
			}
			return nil
		})
		err := l.CaughtUp()
		fs.SetHook(nil)
		if again := l.Append([]Write{{Group: 1, Entries: entries(1, 2, 9, 9)}}); !errors.Is(err, ErrDiskFailed) || !errors.Is(again, ErrDiskFailed) {
			t.Errorf("%v: %v; an append after it: %v", kind, err, again)
		}
		_ = l.Close() // returns the same error
	}
}

// Ranges of one group that touch or overlap are one range in what a repair lists; ranges of different
// groups never are.
func TestRangesOfOneGroupAreJoined(t *testing.T) {
	have := joinRanges([]EntryRange{{2, 5, 9}, {1, 8, 9}, {1, 1, 3}, {1, 4, 6}, {2, 6, 7}, {3, 10, 10}})
	want := []EntryRange{{1, 1, 6}, {1, 8, 9}, {2, 5, 9}, {3, 10, 10}}
	if !slices.Equal(have, want) {
		t.Errorf("have %v, want %v", have, want)
	}
}

// What several repairs have given up is one loss: the later end and term, and the hard state if one of them
// has lost it.
func TestLossesAddUp(t *testing.T) {
	for _, row := range []struct{ old, h, want Hole }{
		{Hole{1, 5, 9, 3, false}, Hole{1, 4, 7, 2, true}, Hole{1, 4, 9, 3, true}},
		{Hole{1, 5, 6, 3, true}, Hole{1, 4, 7, 4, false}, Hole{1, 4, 7, 4, true}},
		{Hole{1, 5, 6, 3, false}, Hole{1, 4, 7, 4, false}, Hole{1, 4, 7, 4, false}},
		{Hole{2, 5, 6, 3, true}, Hole{1, 4, 7, 4, false}, Hole{1, 4, 7, 4, false}},
	} {
		s := loss{holes: map[uint64]Hole{row.old.Group: row.old}}
		if s.add(row.h); s.holes[row.h.Group] != row.want {
			t.Errorf("%+v and %+v: %+v, want %+v", row.old, row.h, s.holes[row.h.Group], row.want)
		}
	}
}

// A log with amnesia that names nothing it lacks may lack anything.
func TestAmnesiaWithoutANameIsAnUnknownLoss(t *testing.T) {
	for _, row := range []struct {
		in   Inspection
		want bool
	}{
		{Inspection{}, false},
		{Inspection{Fence: FenceInfo{Amnesia: true}}, true},
		{Inspection{Fence: FenceInfo{Amnesia: true}, Missing: []Hole{{Group: 1}}}, false},
		{Inspection{Missing: []Hole{{Group: 1}}}, false},
		{Inspection{MissingUnknown: true, Missing: []Hole{{Group: 1}}}, true},
	} {
		if have := row.in.lossUnknown(); have != row.want {
			t.Errorf("%+v: %v, want %v", row.in, have, row.want)
		}
	}
}

// Damage destroys the headers of the entries in its middle. The entry behind it shows that all entries
// before it were there, so the finding names all of them.
func TestEntriesWhoseHeadersAreDestroyedAreLost(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.SegmentBytes = 16384
	l := mustOpen(t, opts)
	ends := []int64{0}
	for i := uint64(1); i <= 6; i++ {
		mustAppend(t, l, add(i, i+1, 1))
		mustSync(t, l)
		ends = append(ends, l.tail.seg.end)
	}
	name := l.tail.seg.path
	disk := fs.Image(crashfs.LoseNothing, nil)
	f, err := disk.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	spoilt := make([]byte, ends[4]-ends[1]-100) // from the header of entry 2 into the data of entry 4
	for i := range spoilt {
		spoilt[i] = 0xEE
	}
	if _, err := f.WriteAt(spoilt, ends[1]); err != nil {
		t.Fatal(err)
	}
	in := mustInspect(t, disk)
	want := []EntryRange{{Group: 1, First: 2, Last: 6}}
	if len(in.Findings) != 1 || !slices.Equal(in.Findings[0].Lost, want) {
		t.Errorf("%+v, want the loss %+v", in.Findings, want)
	}
}
