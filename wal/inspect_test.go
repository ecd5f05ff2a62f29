package wal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// longStory writes a log with everything in it: three groups, one of which compacts, and a slow one whose
// entries are moved; replaced entries, votes, a snapshot, dropped and recycled segments. steps sets its
// length.
func longStory(t testing.TB, steps int, closed bool) *crashfs.FS {
	fs, sched := crashfs.New(), &manual{}
	l := mustOpen(t, testOptions(fs, sched))
	mustAppend(t, l, Write{Group: 3, HardState: raftpb.HardState{Term: 1, Vote: 3}, Snapshot: Snapshot{100, 1}, Entries: entries(101, 104, 1, 40)})
	for i := uint64(1); i < uint64(steps); i += 3 {
		term := 1 + i/40
		w := []Write{{Group: 1, Entries: entries(i, i+3, term, 90)}, {Group: 2, Entries: entries(i, i+3, term, 20)}}
		if i%7 == 0 {
			w[1].HardState = raftpb.HardState{Term: term, Vote: i % 3, Commit: i}
		}
		if i%10 == 0 && i > 30 {
			w = append(w, Write{Group: 1, CompactThrough: i - 20})
		}
		mustAppend(t, l, w...)
		if i%2 == 0 {
			mustSync(t, l)
		}
		sched.runIdle()
	}
	if closed {
		mustClose(t, l)
	} else {
		mustSync(t, l)
		next := l.Group(1).LastIndex() + 1
		mustAppend(t, l, Write{Group: 1, Entries: entries(next, next+3, 99, 300)})
		fs.Crash(crashfs.LoseNothing, nil)
	}
	return fs
}

func mustInspect(t testing.TB, fs vfs.FS) *Inspection {
	t.Helper()
	in, err := Inspect(t.Context(), InspectOptions{FS: fs, Dir: testDir})
	if err != nil {
		t.Fatal(err)
	}
	return in
}

// worst returns the kind of the worst finding.
func (in *Inspection) worst() FindingKind {
	kind := FindingKind("")
	for _, f := range in.Findings {
		if f.Kind != Warned && (kind == "" || kind == TornEnd || f.Kind == Damaged) {
			kind = f.Kind
		}
	}
	return kind
}

func TestInspectionShowsWhatOpenShows(t *testing.T) {
	fs := longStory(t, 200, true)
	in := mustInspect(t, fs)
	if len(in.Findings) > 0 || in.Owner != 7 || in.InUse() || !in.KnowLock || in.Passes != 1 || len(in.Groups) != 3 || len(in.Spares) == 0 {
		t.Errorf("%+v", in)
	}
	if !in.Fence.Found || in.Fence.Generation != 1 || in.Fence.Amnesia || in.Fence.Dirty {
		t.Errorf("%+v", in.Fence)
	}
	l := mustOpen(t, testOptions(fs, &manual{}))
	defer mustClose(t, l)
	if held := mustInspect(t, fs); !held.InUse() {
		t.Error("an open log is not in use")
	}
	records := int64(0)
	for _, s := range in.Segments {
		if s.Records.Bytes+record.SegmentHeaderBytes != s.End && s.End != record.SegmentHeaderBytes || s.Live > s.Records.Bytes {
			t.Errorf("%+v", s)
		}
		for _, n := range s.Records.Count {
			records += n
		}
	}
	streamed := int64(0)
	if err := readRecords(t, fs, func(r placed) error { streamed++; return nil }); err != nil || streamed < records {
		t.Errorf("%d records inspected, %d read: %v", records, streamed, err)
	}
	for _, g := range in.Groups {
		want := l.Group(g.ID)
		if g.First != want.FirstIndex() || g.Last != want.LastIndex() || g.Snapshot != want.Snapshot() ||
			(raftpb.HardState{Term: g.Term, Vote: g.Vote, Commit: g.Commit}) != want.HardState() {
			t.Errorf("%+v", g)
		}
		read, err := in.Group(g.ID).Entries(g.First, g.Last+1, 1<<30)
		if err != nil || uint64(len(read)) != g.Last+1-g.First {
			t.Errorf("group %d: %d entries, %v", g.ID, len(read), err)
		}
		for _, run := range g.Terms {
			if term, err := want.Term(run.First); err != nil || term != run.Term {
				t.Errorf("group %d: term of %d is %d, not %d", g.ID, run.First, term, run.Term)
			}
		}
	}
	if err := in.Close(); err != nil {
		t.Error(err)
	}
}

// harm damages a directory in a way that a crash does not, and returns a description.
func harm(t testing.TB, fs *crashfs.FS, rng *rand.Rand) string {
	names := segmentNames(t, fs)
	name := names[rng.IntN(len(names))]
	file := filepath.Join(testDir, name)
	f, err := fs.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err != nil {
		t.Fatal(err)
	}
	off := rng.Int64N(size)
	rename := func(to string) string {
		if err := fs.Rename(file, path.Join(testDir, to)); err != nil {
			t.Fatal(err)
		}
		return name + " becomes " + to
	}
	write := func(what string, p []byte) string {
		if _, err := f.WriteAt(p, off); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s: %s at %d", name, what, off)
	}
	switch rng.IntN(8) {
	case 0:
		if err := fs.Remove(file); err != nil {
			t.Fatal(err)
		}
		return name + " is removed"
	case 1:
		return rename(record.SegmentName(uint64(rng.IntN(40) + 1)))
	case 2:
		if err := f.Truncate(off); err != nil {
			t.Fatal(err)
		}
		return fmt.Sprintf("%s is cut to %d", name, off)
	case 3:
		return write("zeros", make([]byte, min(512, size-off)))
	default:
		var b [1]byte
		if _, err := f.ReadAt(b[:], off); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1 << rng.IntN(8)
		return write("a flipped bit", b[:])
	}
}

func segmentNames(t testing.TB, fs *crashfs.FS) []string {
	names, err := fs.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(n string) bool { return !strings.HasSuffix(n, record.SegmentSuffix) })
}

// A log is damaged at random. If an inspection calls it whole, Open opens it. If it calls the end torn, Open
// cuts it. If it calls the log corrupt, Open refuses it at a place that the inspection names. The inspection
// changes nothing.
func TestInspectionJudgesAsOpenDoes(t *testing.T) {
	enumerates(t)
	seen := map[FindingKind]int{}
	for seed := range uint64(600) {
		rng := rand.New(rand.NewPCG(seed, 1))
		fs := longStory(t, 20+rng.IntN(120), rng.IntN(2) == 0)
		if rng.IntN(3) == 0 {
			fs.Crash(crashfs.LoseSome, rng.Uint64)
		}
		var story []string
		for range rng.IntN(3) {
			story = append(story, harm(t, fs, rng))
		}
		before := files(t, fs)
		in := mustInspect(t, fs)
		if !maps.EqualFunc(before, files(t, fs), bytes.Equal) {
			t.Fatalf("seed %d: the inspection changed a file", seed)
		}
		seen[in.worst()]++
		l, err := Open(testOptions(fs, &manual{}))
		if msg := disagreement(in, err); msg != "" {
			t.Fatalf("seed %d, %v: %s\n%+v", seed, story, msg, in.Findings)
		}
		if err == nil {
			mustClose(t, l)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("inspected: %d whole, %d torn, %d corrupt, %d unreadable", seen[""], seen[TornEnd], seen[Damaged], seen[Unreadable])
	if seen[""] < 30 || seen[TornEnd] < 15 || seen[Damaged] < 30 {
		t.Errorf("too few: %v", seen)
	}
}

// disagreement returns how an inspection and Open differ, or "".
func disagreement(in *Inspection, err error) string {
	var corrupt *CorruptError
	switch {
	case err == nil && (in.worst() == Damaged || in.worst() == Unreadable):
		return "Open accepts it"
	case errors.As(err, &corrupt):
		for _, f := range in.Findings {
			if f.Kind == Damaged && f.File == corrupt.File && f.Offset == corrupt.Offset {
				return ""
			}
		}
		return "Open says " + err.Error()
	case err != nil && in.worst() != Unreadable:
		return "Open says " + err.Error()
	}
	return ""
}

// An inspection never calls a log damaged because the log is written, rolled over, cleaned or recycled
// meanwhile.
func TestInspectionOfALogInUse(t *testing.T) {
	opts := Options{Dir: t.TempDir(), Scheduler: env.Real().Scheduler, SegmentBytes: 32 << 10, CacheBytes: 1 << 10}
	l := mustOpen(t, opts)
	defer mustClose(t, l)
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := uint64(1); ; i += 10 {
			select {
			case <-done:
				return
			default:
			}
			err := l.Append([]Write{{Group: 1, Entries: entries(i, i+10, 1, 200)}, {Group: 2, Entries: entries(i, i+10, 1, 10)}})
			if err == nil && i%50 == 1 && i > 300 {
				err = l.Append([]Write{{Group: 1, CompactThrough: i - 200}, {Group: 2, CompactThrough: i - 200}})
			}
			if err == nil {
				err = l.Sync()
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	passes, entries := 0, uint64(0)
	for n := 0; (n < 50 || l.Stats().Recycled < 10) && !t.Failed(); n++ {
		in, err := Inspect(t.Context(), InspectOptions{Dir: opts.Dir})
		if err != nil {
			t.Fatal(err)
		}
		if in.worst() == Damaged || in.worst() == Unreadable {
			t.Errorf("%+v", in.Findings)
		}
		if in.KnowLock && !in.InUse() {
			t.Error("the log is not in use")
		}
		if last := in.Group(1).LastIndex(); last < entries {
			t.Errorf("the last entry went back from %d to %d", entries, last)
		} else {
			entries = last
		}
		passes += in.Passes
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
	close(done)
	writer.Wait()
	t.Logf("%d passes, %d entries, %+v", passes, entries, l.Stats())
}

func TestInspectionErrors(t *testing.T) {
	if _, err := Inspect(t.Context(), InspectOptions{Dir: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("the inspection of a missing directory succeeds")
	}
	in, err := Inspect(t.Context(), InspectOptions{Dir: t.TempDir()})
	if err != nil || len(in.Segments) > 0 || len(in.Findings) > 0 {
		t.Errorf("an empty directory: %+v, %v", in, err)
	}
	fs := longStory(t, 60, true)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errDisk)
	if _, err := Inspect(ctx, InspectOptions{FS: fs, Dir: testDir}); !errors.Is(err, errDisk) {
		t.Error(err)
	}
	fs.SetHook(crashfs.FailNth(crashfs.OpRead, 3, errDisk))
	if in := mustInspect(t, fs); len(in.Findings) > 0 {
		t.Errorf("a disk that failed once: %+v", in.Findings)
	}
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpRead && strings.HasSuffix(op.Name, record.SegmentName(2)) {
			return errDisk
		}
		return nil
	})
	if in := mustInspect(t, fs); in.worst() != Unreadable || !slices.ContainsFunc(in.Findings, func(f Finding) bool { return f.Kind == Unreadable && errors.Is(f.Err, errDisk) }) {
		t.Errorf("%+v", in.Findings)
	}
}

// LOCK is removed while a log is open. Still no other process can open the log, and an inspection says that
// it is in use.
func TestLogStaysLockedWithoutItsLockFile(t *testing.T) {
	opts := Options{Dir: t.TempDir(), Scheduler: &manual{}, Clock: &fakeClock{}, SegmentBytes: 64 << 10}
	l := mustOpen(t, opts)
	if err := vfs.OS().Remove(filepath.Join(opts.Dir, "LOCK")); err != nil {
		t.Fatal(err)
	}
	if second, err := Open(opts); !errors.Is(err, vfs.ErrLocked) {
		t.Errorf("a second open: have %v, want ErrLocked", err)
		if err == nil {
			mustClose(t, second)
		}
	}
	in, err := Inspect(t.Context(), InspectOptions{Dir: opts.Dir})
	if err != nil || in.KnowLock && !in.InUse() {
		t.Errorf("the log is not in use: %+v, %v", in, err)
	}
	mustClose(t, l)
	mustClose(t, mustOpen(t, opts))
}

// An inspection or a repair that ends with an error has closed what it opened.
func TestInterruptedInspectionClosesItsFiles(t *testing.T) {
	fs := longStory(t, 60, true)
	disk := &counted{FS: fs}
	ctx, cancel := context.WithCancelCause(t.Context())
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpRead && strings.HasSuffix(op.Name, record.SegmentName(2)) {
			cancel(errDisk)
		}
		return nil
	})
	if _, err := Inspect(ctx, InspectOptions{FS: disk, Dir: testDir}); !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
	if n := disk.now.Load(); n != 0 || disk.most.Load() == 0 {
		t.Errorf("%d files are open, of %d", n, disk.most.Load())
	}
}

// Runs of one term that follow one another are one, with the end of the later.
func TestRunsOfOneTermAreJoined(t *testing.T) {
	var runs []TermRun
	for _, r := range []TermRun{{1, 1, 4}, {1, 5, 9}, {2, 10, 10}, {2, 12, 13}, {3, 14, 14}, {3, 15, 20}} {
		runs = joinTerm(runs, r)
	}
	if want := []TermRun{{1, 1, 9}, {2, 10, 10}, {2, 12, 13}, {3, 14, 20}}; !slices.Equal(runs, want) {
		t.Errorf("have %v, want %v", runs, want)
	}
}
