package wal

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// One group appends and compacts, and a slow group has a few old entries. The cleaner moves those, and the
// log drops and reuses its segments. So the disk holds only a few segments, however much is written.
func TestLaggardDoesNotPinTheDisk(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.SegmentBytes = 16 * vfs.BlockBytes
	l, want := mustOpen(t, opts), twin{}
	do := func(w ...Write) {
		t.Helper()
		want.append(t, l, w...)
		sched.runIdle()
	}
	do(Write{Group: 1, HardState: raftpb.HardState{Term: 4, Vote: 2}, Entries: entries(1, 11, 3, 100)})
	do(Write{Group: 3, HardState: raftpb.HardState{Term: 9, Vote: 1, Commit: 500}, Snapshot: Snapshot{500, 8}})
	most := uint64(0)
	for i := uint64(0); i < 4000; i += 10 {
		do(Write{Group: 2, Entries: entries(i+1, i+11, 1, 500)}, Write{Group: 2, CompactThrough: i + 5})
		most = max(most, l.Stats().Segments)
	}
	s := l.Stats()
	if most > 4 || s.Dropped < 20 || s.Recycled < 15 || s.MovedEntries < 10 {
		t.Errorf("at most %d segments, in the end %+v", most, s)
	}
	want.check(t, l)
	for range 2 {
		fs.Crash(crashfs.LoseAll, nil)
		l = mustOpen(t, opts)
		want.check(t, l)
	}
	mustClose(t, l)
	names, err := fs.ReadDir(testDir)
	if err != nil || len(names) > 4+maxSpares+2 {
		t.Errorf("the directory holds %v, %v", names, err)
	}
}

// While most of the log is needed, the cleaner moves nothing. A log that is never compacted only grows.
func TestNothingIsMovedInVain(t *testing.T) {
	sched := &manual{}
	l := mustOpen(t, testOptions(crashfs.New(), sched))
	for i := uint64(1); i < 200; i++ {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 500)})
		sched.runIdle()
	}
	if s := l.Stats(); s.MovedEntries != 0 || s.Dropped != 0 {
		t.Errorf("%+v", s)
	}
}

// On a full disk entries are refused, but the cleaner still works and frees space.
func TestFullDiskIsCleaned(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 2, 1, 100)})
	sched.runIdle()
	fs.SetHook(full)
	i, err := uint64(1), error(nil)
	for ; err == nil; i++ {
		err = l.Append([]Write{{Group: 2, Entries: entries(i, i+1, 1, 500)}})
		sched.runIdle()
	}
	if !errors.Is(err, ErrDiskFull) {
		t.Fatal(err)
	}
	mustAppend(t, l, Write{Group: 2, CompactThrough: l.Group(2).LastIndex()})
	sched.runIdle()
	for range 30 { // in the space of dropped segments
		next := l.Group(2).LastIndex() + 1
		mustAppend(t, l, Write{Group: 2, Entries: entries(next, next+1, 1, 500)}, Write{Group: 2, CompactThrough: next})
		sched.runIdle()
	}
	if s := l.Stats(); s.Dropped < 4 || s.MovedEntries == 0 {
		t.Errorf("%+v", s)
	}
}

// full is a hook of a disk that has no space for new files.
func full(op crashfs.Op) error {
	if op.Kind == crashfs.OpCreate || op.Kind == crashfs.OpPreallocate {
		return errNoSpace
	}
	return nil
}

// Readers of old entries continue while entries are moved, and segments are dropped and overwritten.
func TestReadersOutliveTheirSegments(t *testing.T) {
	opts := Options{Dir: t.TempDir(), Scheduler: env.Real().Scheduler, SegmentBytes: 32 << 10, CacheBytes: -1}
	l := mustOpen(t, opts)
	defer mustClose(t, l)
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 21, 1, 100)})
	done := make(chan struct{})
	var readers sync.WaitGroup
	for _, id := range []uint64{1, 2} {
		readers.Go(func() {
			g := l.Group(id)
			for {
				select {
				case <-done:
					return
				default:
				}
				lo, hi := g.FirstIndex(), g.LastIndex()+1
				es, err := g.Entries(lo, hi, 4000)
				if errors.Is(err, ErrCompacted) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				for k, e := range es {
					if !sameEntry(e, entry(lo+uint64(k), 1, 100)) {
						t.Errorf("entry %d reads as %d", lo+uint64(k), e.Index)
						return
					}
				}
			}
		})
	}
	for i := uint64(0); l.Stats().Dropped < 30 && !t.Failed(); i += 20 {
		mustAppend(t, l, Write{Group: 2, Entries: entries(i+1, i+21, 1, 100)})
		if i > 400 {
			mustAppend(t, l, Write{Group: 2, CompactThrough: i - 400})
		}
		mustSync(t, l)
	}
	close(done)
	readers.Wait()
}

// A failed operation of the cleaner stops the log, like any other failed write.
func TestCleanerErrorsAreFinal(t *testing.T) {
	for _, kind := range []crashfs.OpKind{crashfs.OpRename, crashfs.OpRemove, crashfs.OpSyncDir, crashfs.OpSync, crashfs.OpWrite} {
		fs, sched := crashfs.New(), &manual{}
		l := mustOpen(t, testOptions(fs, sched))
		for i := uint64(1); l.Stats().Segments < 8; i++ { // more segments than there can be spares
			mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 500)})
			sched.runIdle()
		}
		mustAppend(t, l, Write{Group: 1, CompactThrough: l.Group(1).LastIndex()})
		mustSync(t, l)
		fs.SetHook(crashfs.FailNth(kind, 1, errDisk))
		sched.runIdle()
		if err := l.Sync(); !errors.Is(err, ErrDiskFailed) || !errors.Is(err, errDisk) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// The cleaner must move entries that are larger than a segment, because the log was written with larger
// segments. While it reads them, the first one is compacted. It must then ensure space for the second one,
// which is larger than the first.
func TestMovedEntriesHaveSpaceWhenOneWasCompacted(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.SegmentBytes, opts.CacheBytes = 64<<10, -1
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 1, Entries: []raftpb.Entry{entry(1, 1, 5000), entry(2, 1, 9000)}}, Write{Group: 2, Entries: entries(1, 8, 1, 9000)})
	mustClose(t, l)
	opts.SegmentBytes = 4096
	l = mustOpen(t, opts)
	for i := uint64(8); i < 30; i++ {
		mustAppend(t, l, Write{Group: 2, Entries: entries(i, i+1, 1, 3000)}, Write{Group: 2, CompactThrough: i})
	}
	reads := 0
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpRead {
			if reads++; reads == 1 {
				mustAppend(t, l, Write{Group: 1, CompactThrough: 1})
			}
		}
		return nil
	})
	sched.runIdle()
	fs.SetHook(nil)
	if n := l.Stats().MovedEntries; reads == 0 || n != 1 {
		t.Errorf("%d reads, %d entries moved", reads, n)
	}
	mustClose(t, l)
	es, err := mustOpen(t, opts).Group(1).Entries(2, 3, 1<<20)
	if err != nil || len(es) != 1 || !sameEntry(es[0], entry(2, 1, 9000)) {
		t.Errorf("%d entries, %v", len(es), err)
	}
}

// A small compaction alone does not start a survey of the whole index. Several together do, and so does an
// append that finds no space.
func TestSmallCompactionsAreSurveyedTogether(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.SegmentBytes = 64 << 10
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 101, 1, 200)})
	sched.runIdle()
	looked := uint64(0)
	for i := uint64(1); i <= 100 && looked == 0; i++ {
		mustAppend(t, l, Write{Group: 1, CompactThrough: i})
		if l.cleaner.due.Load() {
			looked = i
		}
	}
	if want := uint64(opts.SegmentBytes/surveyShare/record.Bytes(200)) + 1; looked < want/2 || looked > want {
		t.Errorf("a survey is due after %d compactions of one entry, want about %d", looked, want)
	}
	sched.runIdle()
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpCreate || op.Kind == crashfs.OpPreallocate {
			return errNoSpace
		}
		return nil
	})
	if err := l.Append([]Write{{Group: 1, Entries: entries(101, 1101, 1, 1000)}}); !errors.Is(err, ErrDiskFull) || !l.cleaner.due.Load() {
		t.Errorf("an append without space: %v, and no survey is due", err)
	}
}

// A group appears, and the log rolls over to the next segment, while the cleaner waits for the lock of the
// log. The survey must find that the segment with the group's first record is needed.
func TestGroupThatAppearsDuringASurvey(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New(), &manual{}))
	surveys := make(chan survey)
	l.mu.Lock() // an append is under way
	go func() { surveys <- l.survey() }()
	for stack := make([]byte, 1<<20); !waitsInSurvey(string(stack[:runtime.Stack(stack, true)])); {
		runtime.Gosched()
	}
	at, err := l.putHardState(2, raftpb.HardState{Term: 1, Vote: 1}, oneRecord())
	l.Group(2).pinHardState(at)
	err = errors.Join(err, l.roll())
	l.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if v := <-surveys; v.needed > at {
		t.Errorf("segment %d holds the group's vote, but the lowest needed segment is %d", at, v.needed)
	}
}

// waitsInSurvey reports whether a goroutine waits for a lock in survey.
func waitsInSurvey(stacks string) bool {
	for _, g := range strings.Split(stacks, "\n\n") {
		if strings.Contains(g, "[sync.Mutex.Lock") && strings.Contains(g, "(*Log).survey(") {
			return true
		}
	}
	return false
}

// Open has woken the helper when it returns, and the helper may free a segment at once. Seen under the race
// detector: Open counted the segments for its report meanwhile.
func TestOpenBesideItsHelper(t *testing.T) {
	opts := testOptions(crashfs.New(), &manual{})
	l := mustOpen(t, opts)
	for i := uint64(1); i < 30; i++ {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 900)})
	}
	mustAppend(t, l, Write{Group: 1, CompactThrough: 28})
	mustClose(t, l)
	opts.Scheduler = env.Real().Scheduler
	l = mustOpen(t, opts)
	for l.Stats().Dropped == 0 {
		runtime.Gosched()
	}
	mustClose(t, l)
}
