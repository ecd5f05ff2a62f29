package wal

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

func repairLog(t testing.TB, fs vfs.FS, write bool) (*Repair, error) {
	return RepairLog(t.Context(), RepairOptions{InspectOptions: InspectOptions{FS: fs, Dir: testDir}, Write: write})
}

// checkKept checks that a repaired log has amnesia and holds only what longStory wrote.
func checkKept(t testing.TB, fs *crashfs.FS) *Log {
	t.Helper()
	l := mustOpen(t, testOptions(fs, &manual{}))
	if !l.Fence().Amnesia {
		t.Error("the log may vote")
	}
	for _, id := range l.Groups() {
		g := l.Group(id)
		es, err := g.Entries(g.FirstIndex(), g.LastIndex()+1, 1<<30)
		if err != nil || uint64(len(es)) != g.LastIndex()+1-g.FirstIndex() {
			t.Errorf("group %d: %d entries, %v", id, len(es), err)
		}
		for _, e := range es {
			if !bytes.Equal(e.Data, entry(e.Index, e.Term, len(e.Data)).Data) {
				t.Errorf("group %d: entry %d is not what was written", id, e.Index)
			}
		}
		if hs := g.HardState(); hs.Commit > g.LastIndex() {
			t.Errorf("group %d: %+v, but the last entry is %d", id, hs, g.LastIndex())
		}
	}
	return l
}

// A log is damaged at random. Planning a repair changes no file. The repair leaves a log that opens with
// amnesia, has exactly the losses that the repair named, and has every byte that was given up in another
// file.
func TestRepair(t *testing.T) {
	enumerates(t)
	repaired, refused, whole := 0, 0, 0
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 2))
		fs := longStory(t, 20+rng.IntN(150), rng.IntN(2) == 0)
		harm(t, fs, rng)
		before, in := files(t, fs), mustInspect(t, fs)
		plan, err := repairLog(t, fs, false)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if !maps.EqualFunc(before, files(t, fs), bytes.Equal) {
			t.Fatalf("seed %d: the plan changed a file", seed)
		}
		r, err := repairLog(t, fs, true)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		switch {
		case r.Refused != "" || !r.Needed:
			if !maps.EqualFunc(before, files(t, fs), bytes.Equal) || r.Done {
				t.Fatalf("seed %d: a file was changed: %+v", seed, r)
			}
			if r.Refused == "" {
				whole++
			} else {
				refused++
			}
			continue
		case !r.Done || len(plan.Steps) != len(r.Steps):
			t.Fatalf("seed %d: %+v, planned %+v", seed, r, plan)
		}
		repaired++
		checkBackups(t, in, before, files(t, fs))
		l := checkKept(t, fs)
		for _, loss := range r.Losses {
			if g := l.Group(loss.Group); g.LastIndex() != loss.Through || g.HardState() != loss.StateIs {
				t.Errorf("seed %d: %+v, but the last entry is %d and the state %+v", seed, loss, g.LastIndex(), g.HardState())
			}
		}
		mustAppend(t, l, Write{Group: 1, Entries: entries(l.Group(1).LastIndex()+1, l.Group(1).LastIndex()+40, 200, 300)})
		mustClose(t, l)
		if again, err := repairLog(t, fs, true); err != nil || again.Needed {
			t.Errorf("seed %d: after the repair another one is needed: %+v, %v", seed, again, err)
		}
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, r)
		}
	}
	t.Logf("%d repaired, %d refused, %d were whole", repaired, refused, whole)
	if repaired < 100 || whole < 30 {
		t.Error("too few")
	}
}

// checkBackups checks that no bytes of a segment are lost. The file of the same name must have all its valid
// records. If something in the segment was given up, a file of that name or of a longer one must have all
// bytes.
func checkBackups(t testing.TB, in *Inspection, before, after map[string][]byte) {
	t.Helper()
	for _, s := range in.Segments {
		data := before[s.Name]
		if now, ok := after[s.Name]; ok && int64(len(now)) >= s.End && bytes.Equal(data[:min(s.End, int64(len(data)))], now[:min(s.End, int64(len(data)))]) {
			if !slices.ContainsFunc(in.Findings, func(f Finding) bool {
				return f.File == testDir+"/"+s.Name && f.Kind == Damaged && f.Rule != "R7" && f.Rule != "R9"
			}) {
				continue
			}
		}
		kept := slices.ContainsFunc(slices.Collect(maps.Keys(after)), func(n string) bool {
			return strings.HasPrefix(n, s.Name) && bytes.Equal(after[n], data)
		})
		if !kept && len(s.Records.Count) > 0 {
			t.Errorf("the contents of %s are in no file", s.Name)
		}
	}
}

// A repair crashes at each of its operations, and the crash may lose everything that was not synced. After
// that the log is refused or has amnesia. The same holds after a crash in the second repair. The third
// repair arrives at the same log, with the same loss, as a repair without a crash.
func TestRepairIsRepeatable(t *testing.T) {
	enumerates(t)
	base := longStory(t, 120, true)
	spoil(t, base)
	in, before := mustInspect(t, base), files(t, base)
	want, wantLoss := repairedState(t, base.Image(crashfs.LoseNothing, nil))
	crashes, nested := 0, 0
	for n := 1; ; n++ {
		rng := rand.New(rand.NewPCG(uint64(n), 3))
		fs := base.Image(crashfs.LoseNothing, nil)
		if !cutOffRepair(t, fs, n, rng) {
			break
		}
		crashes++
		for range 4 {
			again := fs.Image(crashfs.LoseSome, rng.Uint64)
			refusedOrAmnesia(t, again, n)
			if cutOffRepair(t, again, 1+rng.IntN(80), rng) {
				nested++
				refusedOrAmnesia(t, again, n)
			}
			have, haveLoss := repairedState(t, again)
			checkBackups(t, in, before, files(t, again))
			if !reflect.DeepEqual(have, want) {
				t.Fatalf("crash at operation %d: the repaired log is %v, want %v", n, have, want)
			}
			if !maps.Equal(haveLoss, wantLoss) {
				t.Fatalf("crash at operation %d: the loss is %v, want %v", n, haveLoss, wantLoss)
			}
		}
	}
	t.Logf("%d crashes, %d in the repair after one", crashes, nested)
	if crashes < 15 || nested < 30 {
		t.Error("too few")
	}
}

// cutOffRepair repairs a log and crashes at the n-th operation. It reports false if the repair has fewer.
func cutOffRepair(t *testing.T, fs *crashfs.FS, n int, rng *rand.Rand) bool {
	t.Helper()
	ops, crashed := 0, false
	fs.SetHook(func(op crashfs.Op) error {
		if ops++; ops == n {
			crashed = true
			fs.Crash(crashfs.LoseSome, rng.Uint64)
		}
		return nil
	})
	r, err := repairLog(t, fs, true)
	fs.SetHook(nil)
	if !crashed && (err != nil || r.Needed && !r.Done) {
		t.Fatalf("without a crash: %+v, %v", r, err)
	}
	return crashed
}

// refusedOrAmnesia checks that a log does not open, or has amnesia.
func refusedOrAmnesia(t *testing.T, fs *crashfs.FS, n int) {
	t.Helper()
	l, err := Open(testOptions(fs.Image(crashfs.LoseNothing, nil), &manual{}))
	if err == nil && !l.Fence().Amnesia {
		t.Fatalf("crash at operation %d: the log opens, and may vote", n)
	}
	if err == nil {
		mustClose(t, l)
	}
}

// repairedState repairs a log and returns its state: the last index and hard state of each group, and the
// last entry of each hole.
func repairedState(t *testing.T, fs *crashfs.FS) (map[uint64][2]any, map[uint64]uint64) {
	t.Helper()
	if r, err := repairLog(t, fs, true); err != nil || r.Refused != "" {
		t.Fatalf("%+v, %v", r, err)
	}
	lost := map[uint64]uint64{}
	for _, h := range mustInspect(t, fs).Missing {
		lost[h.Group] = h.Through
	}
	l, state := checkKept(t, fs), map[uint64][2]any{}
	for _, id := range l.Groups() {
		state[id] = [2]any{l.Group(id).LastIndex(), l.Group(id).HardState()}
		// Seen in seed 110 of TestRepairs in sim: the hard state had been moved behind the damage.
		if term, err := l.Group(id).Term(l.Group(id).LastIndex()); err != nil || term > l.Group(id).HardState().Term {
			t.Fatalf("group %d ends in term %d (%v), and is in term %d", id, term, err, l.Group(id).HardState().Term)
		}
	}
	mustClose(t, l)
	return state, lost
}

// spoil flips a byte in the middle of the middle segment.
func spoil(t testing.TB, fs *crashfs.FS) {
	names := segmentNames(t, fs)
	f, err := fs.Open(testDir + "/" + names[len(names)/2])
	if err != nil {
		t.Fatal(err)
	}
	var b [1]byte
	if _, err := f.ReadAt(b[:], 1500); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b[:], 1500); err != nil {
		t.Fatal(err)
	}
}

func TestRepairRefuses(t *testing.T) {
	fs := longStory(t, 120, true)
	l := mustOpen(t, testOptions(fs, &manual{}))
	if _, err := repairLog(t, fs, true); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a log in use: %v", err)
	}
	mustClose(t, l)
	spoil(t, fs)
	before := files(t, fs)

	fs.SetHook(full)
	if _, err := repairLog(t, fs, true); err == nil {
		t.Error("a repair on a full disk succeeds")
	}
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpPreallocate {
			return errNoSpace
		}
		return nil
	})
	if _, err := repairLog(t, fs, true); err == nil || !strings.Contains(err.Error(), "no space for") {
		t.Error(err)
	}
	fs.SetHook(nil)
	after := files(t, fs)
	delete(after, fenceName)
	delete(after, "SALVAGE.new") // the file of the unfinished repair; the next repair removes it
	delete(before, fenceName)
	if !maps.EqualFunc(before, after, bytes.Equal) {
		t.Errorf("without space for a copy a file was changed: %v, %v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errDisk)
	if _, err := RepairLog(ctx, RepairOptions{InspectOptions: InspectOptions{FS: fs, Dir: testDir}, Write: true}); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	if _, err := RepairLog(t.Context(), RepairOptions{InspectOptions: InspectOptions{FS: fs, Dir: "/none"}, Write: true}); err == nil {
		t.Error("the repair of a missing directory succeeds")
	}
	f, err := fs.Open(testDir + "/" + fenceName)
	if err != nil {
		t.Fatal(err)
	}
	for _, off := range []int64{20, fenceBlock + 20} { // both copies
		if _, err := f.WriteAt([]byte{1}, off); err != nil {
			t.Fatal(err)
		}
	}
	was := mustInspect(t, fs).scan.newest
	if r, err := repairLog(t, fs, true); err != nil || !r.Done || !r.Fence.Amnesia || was == 0 || r.Fence.Generation <= was {
		t.Errorf("the segments know generation %d: %+v, %v", was, r, err)
	}
}

// A repair that is interrupted returns why, wherever that happens, unless it was done.
func TestInterruptedRepairIsNotSilent(t *testing.T) {
	enumerates(t)
	story := longStory(t, 120, true)
	spoil(t, story)
	interrupted := 0
	for n := 1; ; n++ {
		fs := story.Image(crashfs.LoseNothing, nil)
		ctx, cancel := context.WithCancelCause(t.Context())
		operations := 0
		fs.SetHook(func(crashfs.Op) error {
			if operations++; operations == n {
				cancel(errDisk)
			}
			return nil
		})
		r, err := RepairLog(ctx, RepairOptions{InspectOptions: InspectOptions{FS: fs, Dir: testDir}, Write: true})
		cancel(nil)
		if operations < n {
			break
		}
		if err == nil && !r.Done || err != nil && !errors.Is(err, errDisk) {
			t.Fatalf("interrupted at operation %d: done %v, %v", n, r.Done, err)
		}
		if err != nil {
			interrupted++
		}
	}
	if interrupted < 10 {
		t.Errorf("%d repairs were interrupted", interrupted)
	}
}

// spoils is a disk that damages a segment as soon as it is renamed to its name.
type spoils struct{ vfs.FS }

func (s spoils) Rename(from, to string) error {
	if err := s.FS.Rename(from, to); err != nil || !strings.HasSuffix(to, record.SegmentSuffix) {
		return err
	}
	f, err := s.FS.Open(to)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{0xEE, 0xEE, 0xEE}, record.SegmentHeaderBytes+3)
	return errors.Join(err, f.Close())
}

// A disk damages what a repair has just written. The repair does not say that the log is whole.
func TestRepairThatIsSpoiledIsNotDone(t *testing.T) {
	fs := longStory(t, 120, true)
	spoil(t, fs)
	if r, err := repairLog(t, spoils{fs}, true); err == nil || r.Done || !strings.Contains(err.Error(), "the log is still not whole") {
		t.Errorf("done %v, %v", r.Done, err)
	}
}
