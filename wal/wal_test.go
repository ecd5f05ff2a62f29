package wal

import (
	"bytes"
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// TestMain lets garbage grow to nine times the live heap, which is small: nearly all that these tests
// allocate lives for one image of a disk, and collecting it took a third of their time.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(1 << 30) // the few tests with large entries collect earlier
	goleak.VerifyTestMain(m)
}

func TestAppendReadReopen(t *testing.T) {
	opts := Options{Dir: t.TempDir() + "/a/b", Scheduler: env.Real().Scheduler, Owner: 1, SegmentBytes: 1 << 20}
	l := mustOpen(t, opts)
	want := twin{}
	for i := range uint64(50) {
		w := []Write{
			{Group: 1, HardState: raftpb.HardState{Term: i + 1, Vote: 2, Commit: i}, Entries: entries(i*3+1, i*3+4, i+1, 1000)},
			{Group: 2, Entries: entries(i+1, i+2, 1, int(i))},
		}
		mustAppend(t, l, w...)
		want.apply(w)
		if i%7 == 0 {
			mustSync(t, l)
		}
	}
	want.check(t, l)
	mustSync(t, l)
	if s := l.Stats(); s.Syncs == 0 || s.Appends != 50 || s.AppendedEntries != 200 || s.SyncedBytes != s.AppendedBytes {
		t.Errorf("stats: %+v", s)
	}
	mustClose(t, l)
	mustClose(t, l)
	if err := l.Append([]Write{{Group: 1}}); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	for range 3 {
		l = mustOpen(t, opts)
		want.check(t, l)
		mustClose(t, l)
	}
}

func TestEmptyGroup(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New(), &manual{}))
	g := l.Group(9)
	if g.FirstIndex() != 1 || g.LastIndex() != 0 {
		t.Errorf("indexes [%d, %d]", g.FirstIndex(), g.LastIndex())
	}
	if term, err := g.Term(0); term != 0 || err != nil {
		t.Errorf("term of 0: %d, %v", term, err)
	}
	if _, err := g.Term(1); !errors.Is(err, ErrUnavailable) {
		t.Errorf("term of 1: %v", err)
	}
	if _, err := g.Entries(0, 1, 0); !errors.Is(err, ErrCompacted) {
		t.Errorf("entries from 0: %v", err)
	}
	if _, err := g.Entries(1, 2, 0); !errors.Is(err, ErrUnavailable) {
		t.Errorf("entries from 1: %v", err)
	}
	mustAppend(t, l, Write{Group: 9, Entries: entries(1, 3, 1, 1)})
	if _, err := g.Entries(1, 4, 0); !errors.Is(err, ErrUnavailable) {
		t.Errorf("entries through 3: %v", err)
	}
}

func TestEntriesLimits(t *testing.T) {
	for _, cache := range []int64{-1, 1000, 1 << 20} { // all cold, mixed, all warm
		opts := testOptions(crashfs.New(), &manual{})
		opts.CacheBytes = cache
		l := mustOpen(t, opts)
		mustAppend(t, l, Write{Group: 1, Entries: entries(1, 6, 1, 100)})
		mustAppend(t, l, Write{Group: 1, Entries: entries(6, 11, 1, 100)})
		for _, c := range []struct{ lo, hi, max, want uint64 }{
			{1, 11, 0, 1}, {1, 11, 131, 1}, {1, 11, 132, 1}, {1, 11, 263, 1}, {1, 11, 264, 2},
			{4, 9, ^uint64(0), 5}, {10, 11, 0, 1}, {5, 5, 100, 0}, {8, 11, 264, 2},
		} {
			got, err := l.Group(1).Entries(c.lo, c.hi, c.max)
			if err != nil || uint64(len(got)) != c.want {
				t.Errorf("cache %d: Entries(%d, %d, %d) = %d entries, %v; want %d", cache, c.lo, c.hi, c.max, len(got), err, c.want)
			}
			for i, e := range got {
				if !sameEntry(e, entry(c.lo+uint64(i), 1, 100)) {
					t.Errorf("cache %d: Entries(%d, %d, %d)[%d] is entry %d", cache, c.lo, c.hi, c.max, i, e.Index)
				}
			}
		}
		if s := l.Stats(); int64(s.CachedBytes) > max(cache, 0) || (cache < 0) != (s.CachedBytes == 0) {
			t.Errorf("cache of %d bytes holds %d", cache, s.CachedBytes)
		}
	}
}

func TestInvalidWritesChangeNothing(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New(), &manual{}))
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 4, 1, 10)})
	before := l.Stats()
	for name, w := range map[string][]Write{
		"gap":           {{Group: 1, Entries: entries(5, 6, 1, 1)}},
		"index 0":       {{Group: 2, Entries: entries(0, 2, 1, 1)}},
		"new group":     {{Group: 2, Entries: entries(2, 3, 1, 1)}},
		"second write":  {{Group: 1, Entries: entries(2, 3, 2, 1)}, {Group: 1, Entries: entries(4, 5, 2, 1)}},
		"discontiguous": {{Group: 1, Entries: []raftpb.Entry{entry(4, 1, 1), entry(6, 1, 1)}}},
		"type":          {{Group: 1, Entries: []raftpb.Entry{{Index: 4, Type: 256}}}},
	} {
		if err := l.Append(w); !errors.Is(err, ErrInvalidWrite) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if l.Stats() != before || l.Group(1).LastIndex() != 3 {
		t.Errorf("changed: %+v", l.Stats())
	}
	mustAppend(t, l, Write{Group: 1, Entries: entries(2, 3, 2, 1)}, Write{Group: 1, Entries: entries(3, 6, 2, 1)})
	if l.Group(1).LastIndex() != 5 {
		t.Errorf("last index %d, want 5", l.Group(1).LastIndex())
	}
}

func TestSyncWithNothingPendingCostsNothing(t *testing.T) {
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs, &manual{}))
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 2, 1, 10)})
	mustSync(t, l)
	fs.SetHook(func(op crashfs.Op) error { t.Errorf("unexpected %s", op); return nil })
	mustSync(t, l)
	mustAppend(t, l)
	mustAppend(t, l, Write{Group: 1})
	mustSync(t, l)
}

func TestOneWritePerAppend(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.SegmentBytes = 1 << 20
	l := mustOpen(t, opts)
	writes, syncs := 0, 0
	fs.SetHook(func(op crashfs.Op) error {
		switch op.Kind {
		case crashfs.OpWrite:
			writes++
		case crashfs.OpSync:
			syncs++
		}
		return nil
	})
	mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 100, 1, 1000)}, Write{Group: 2, Entries: entries(1, 100, 1, 1000)})
	mustSync(t, l)
	if writes != 1 || syncs != 1 {
		t.Errorf("%d writes and %d syncs, want 1 and 1", writes, syncs)
	}
}

func TestModeSyncIsDurableOnReturn(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.Mode = ModeSync
	l := mustOpen(t, opts)
	want := twin{}
	for i := range uint64(20) {
		w := []Write{{Group: 1, HardState: raftpb.HardState{Term: i + 1}, Entries: entries(i+1, i+2, i+1, 300)}}
		mustAppend(t, l, w...)
		want.apply(w)
	}
	fs.Crash(crashfs.LoseAll, nil)
	want.check(t, mustOpen(t, opts))
}

func TestEntryLargerThanSegment(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	for _, first := range []bool{true, false} {
		opts.Dir = testDir + map[bool]string{true: "/first", false: "/later"}[first]
		l := mustOpen(t, opts)
		want := twin{}
		add := func(w ...Write) { mustAppend(t, l, w...); want.apply(w) }
		next := uint64(1)
		if !first {
			add(Write{Group: 1, Entries: entries(1, 3, 1, 1000)})
			sched.runIdle()
			next = 3
		}
		add(Write{Group: 1, Entries: []raftpb.Entry{entry(next, 1, 3), entry(next+1, 1, 100_000), entry(next+2, 1, 9000), entry(next+3, 1, 3)}})
		sched.runIdle()
		add(Write{Group: 1, Entries: []raftpb.Entry{entry(next+4, 1, 50_000)}})
		mustSync(t, l)
		want.check(t, l)
		fs.Crash(crashfs.LoseAll, nil)
		l = mustOpen(t, opts)
		want.check(t, l)
		mustClose(t, l)
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	for name, fs := range map[string]vfs.FS{"os": vfs.OS(), "crashfs": crashfs.New()} {
		opts := testOptions(fs, &manual{})
		opts.Dir = t.TempDir()
		l := mustOpen(t, opts)
		_, err := Open(opts)
		if !errors.Is(err, vfs.ErrLocked) || !strings.Contains(err.Error(), opts.Dir) {
			t.Errorf("%s: %v", name, err)
		}
		mustClose(t, l)
		mustClose(t, mustOpen(t, opts))
	}
}

func TestWrongOwnerIsRefused(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 2, 1, 1)})
	mustClose(t, l)
	opts.Owner = 8
	_, err := Open(opts)
	if !errors.Is(err, ErrOwner) || !strings.Contains(err.Error(), "written by host 7, this is host 8") {
		t.Error(err)
	}
	opts.Owner = 7
	mustClose(t, mustOpen(t, opts))
}

func TestOptionsValidate(t *testing.T) {
	good := testOptions(crashfs.New(), &manual{})
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Options){
		"Dir":          func(o *Options) { o.Dir = "" },
		"Scheduler":    func(o *Options) { o.Scheduler = nil },
		"mode":         func(o *Options) { o.Mode.Kind = 9 },
		"SegmentBytes": func(o *Options) { o.SegmentBytes = 5 },
	} {
		opts := good
		spoil(&opts)
		if _, err := Open(opts); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A failed sync is final, even if the next one would succeed. The error names the operation and the file.
func TestSyncErrorIsFinal(t *testing.T) {
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs, &manual{}))
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 3, 1, 10)})
	fs.SetHook(crashfs.FailNth(crashfs.OpSync, 1, syscall.EIO))
	err := l.Sync()
	var failed *FailedError
	if !errors.As(err, &failed) || !errors.Is(err, ErrDiskFailed) || !errors.Is(err, syscall.EIO) || failed.Op != "sync" || failed.File == "" {
		t.Fatal(err)
	}
	for range 2 {
		if err := l.Sync(); !errors.Is(err, ErrDiskFailed) {
			t.Errorf("sync after failure: %v", err)
		}
		if err := l.Append([]Write{{Group: 1, Entries: entries(3, 4, 1, 1)}}); !errors.Is(err, ErrDiskFailed) {
			t.Errorf("append after failure: %v", err)
		}
	}
	if err := l.Close(); !errors.Is(err, ErrDiskFailed) {
		t.Errorf("close after failure: %v", err)
	}
}

// Seen in kernels: after a failed fsync the bytes are in clean pages in memory, and not on disk. The
// process restarts, reads them, and syncs with success. Then the power fails.
func TestRestartAfterSyncErrorRewritesTheTail(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	l := mustOpen(t, opts)
	want := twin{}
	w := []Write{{Group: 1, HardState: raftpb.HardState{Term: 3, Vote: 2}, Entries: entries(1, 3, 1, 10)}}
	mustAppend(t, l, w...)
	want.apply(w)
	fs.SetHook(crashfs.FailNth(crashfs.OpSync, 1, syscall.EIO))
	if err := l.Sync(); err == nil {
		t.Fatal("sync succeeded")
	}
	fs.SetHook(nil)
	_ = l.Close()
	rewritten := int64(0)
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite {
			rewritten += op.Len
		}
		return nil
	})
	l = mustOpen(t, opts)
	want.check(t, l)
	if rewritten < 2*record.HeaderBytes {
		t.Errorf("recovery wrote %d bytes; it must write the unsynced tail again", rewritten)
	}
}

func TestWriteErrors(t *testing.T) {
	for _, c := range []struct {
		kind crashfs.OpKind
		err  error
		roll bool
	}{
		{crashfs.OpWrite, syscall.EIO, false},
		{crashfs.OpWrite, syscall.EROFS, true},
		{crashfs.OpSync, syscall.EIO, true},
		{crashfs.OpCreate, syscall.EACCES, true},
		{crashfs.OpPreallocate, syscall.EIO, true},
		{crashfs.OpSyncDir, syscall.EIO, true},
	} {
		fs := crashfs.New()
		opts := testOptions(fs, &manual{})
		l := mustOpen(t, opts)
		want := twin{}
		w := []Write{{Group: 1, HardState: raftpb.HardState{Term: 1, Vote: 1}, Entries: entries(1, 4, 1, 1000)}}
		mustAppend(t, l, w...)
		mustSync(t, l)
		want.apply(w)
		fs.SetHook(crashfs.FailNth(c.kind, 1, c.err))
		size := 10
		if c.roll {
			size = 2000
		}
		err := l.Append([]Write{{Group: 1, Entries: entries(4, 5, 1, size)}})
		if !errors.Is(err, ErrDiskFailed) || !errors.Is(err, c.err) {
			t.Errorf("%s %v (roll %v): %v", c.kind, c.err, c.roll, err)
		}
		if l.Group(1).LastIndex() != 3 {
			t.Errorf("%s %v: failed entries are visible", c.kind, c.err)
		}
		if err := l.Sync(); !errors.Is(err, c.err) {
			t.Errorf("%s %v: sync says %v", c.kind, c.err, err)
		}
		fs.SetHook(nil)
		_ = l.Close()
		fs.Crash(crashfs.LoseAll, nil)
		want.check(t, mustOpen(t, opts))
	}
}

// If the helper cannot prepare a segment, the log continues. If the helper finds the disk broken, the log
// stops.
func TestHelperErrors(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.SegmentBytes = 2 * vfs.BlockBytes
	l := mustOpen(t, opts)
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpPreallocate {
			return syscall.ENOSPC
		}
		return nil
	})
	sched.runIdle()
	fs.SetHook(nil)
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 10, 1, 1000)})
	mustSync(t, l)
	if s := l.Stats(); s.SegmentsWaited == 0 {
		t.Errorf("stats %+v", s)
	}

	syncs := 0
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync && strings.HasSuffix(op.Name, record.SegmentSuffix) {
			if syncs++; syncs == 2 { // the first sync is for the new segment, the second for its zeros
				return syscall.EIO
			}
		}
		return nil
	})
	sched.runIdle()
	if err := l.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync after the helper found the disk broken: %v", err)
	}
}

// While a log grows, is truncated and synced, readers see whole entries without a gap.
func TestConcurrentReaders(t *testing.T) {
	opts := Options{Dir: t.TempDir(), Scheduler: env.Real().Scheduler, SegmentBytes: 64 << 10, CacheBytes: 16 << 10}
	l := mustOpen(t, opts)
	const last = 2000
	done := make(chan struct{})
	var readers sync.WaitGroup
	for r := range 3 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			g := l.Group(1)
			for i := uint64(r); ; i++ {
				select {
				case <-done:
					return
				default:
				}
				hi := g.LastIndex()
				if hi == 0 {
					continue
				}
				lo := 1 + i*37%hi
				es, err := g.Entries(lo, min(hi+1, lo+50), 1<<20)
				if errors.Is(err, ErrUnavailable) {
					continue // truncated meanwhile
				}
				if err != nil {
					t.Error(err)
					return
				}
				for k, e := range es {
					if e.Index != lo+uint64(k) || !bytes.Equal(e.Data, entry(e.Index, e.Term, 200).Data) {
						t.Errorf("entry %d reads as (%d, %d)", lo+uint64(k), e.Index, e.Term)
						return
					}
				}
				_ = l.Stats()
				_ = g.HardState()
			}
		}()
	}
	term := uint64(1)
	for i := uint64(1); i <= last; {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+10, term, 200)}, Write{Group: 2, HardState: raftpb.HardState{Term: i}})
		mustSync(t, l)
		i += 10
		if i%300 == 1 {
			i -= 25
			term++
		}
	}
	close(done)
	readers.Wait()
	mustClose(t, l)
	if _, err := l.Group(1).Entries(1, 2, 0); !errors.Is(err, ErrClosed) {
		t.Errorf("cold read after close: %v", err)
	}
}

func TestColdReadOfSpoiledBytes(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.CacheBytes = -1
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 4, Entries: entries(1, 4, 1, 100)})
	off := int64(l.Group(4).index.at(2).off) + record.Bytes(100) + record.HeaderBytes + 5
	f, err := fs.Open(testDir + "/" + record.SegmentName(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{0xff}, off); err != nil {
		t.Fatal(err)
	}
	_, err = l.Group(4).Entries(1, 4, ^uint64(0))
	var corrupt *CorruptError
	if !errors.As(err, &corrupt) || corrupt.Group != 4 || corrupt.Index != 2 || corrupt.Offset != off-record.HeaderBytes-5 {
		t.Error(err)
	}
	fs.SetHook(crashfs.FailNth(crashfs.OpRead, 1, errDisk))
	if _, err = l.Group(4).Entries(1, 2, 0); !errors.Is(err, errDisk) {
		t.Error(err)
	}
}

func TestAppendAllocates(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	opts := Options{Dir: t.TempDir(), Scheduler: &manual{}, Clock: &fakeClock{}, SegmentBytes: 256 << 20, CacheBytes: 1 << 20}
	l := mustOpen(t, opts)
	defer l.Close()
	for _, n := range []uint64{1, 100, 1000} {
		es := entries(1, n+1, 1, 1024)
		w := []Write{{Group: n, Entries: es}}
		next := uint64(1)
		got := testing.AllocsPerRun(20, func() {
			for i := range es {
				es[i].Index = next
				next++
			}
			if err := l.Append(w); err != nil {
				t.Fatal(err)
			}
		})
		if got > 3+float64(n/100) { // for large data the cache allocates one array per hundred entries
			t.Errorf("an append of %d entries allocates %v times", n, got)
		}
	}
}

// On a full disk the helper does not try to make a segment, or log a warning, after every sync. It still
// fills the tail with zeros.
func TestFullDiskIsAskedSeldom(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.SegmentBytes = 4 << 20
	l := mustOpen(t, opts)
	asked := 0
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpCreate {
			asked++
			return syscall.ENOSPC
		}
		return nil
	})
	for i := range uint64(500) {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i+1, i+2, 1, 1000)})
		mustSync(t, l)
		sched.runIdle()
	}
	if asked > 2 || l.Stats().ZeroedBytes == 0 {
		t.Errorf("asked %d times in 500 syncs, zero-filled %d bytes", asked, l.Stats().ZeroedBytes)
	}
}

// refusing opens files for direct writes and then refuses the writes, as some filesystems do.
type refusing struct{ vfs.FS }

type refusingWriter struct{ vfs.BlockWriter }

func (f refusing) OpenDirect(name string) (vfs.BlockWriter, error) {
	w, err := f.FS.OpenDirect(name)
	return refusingWriter{w}, err
}

func (refusingWriter) WriteAt([]byte, int64) (int, error) { return 0, syscall.EINVAL }

func TestDirectWritesThatAreRefusedGoThroughThePageCache(t *testing.T) {
	fs, sched := refusing{crashfs.New()}, &manual{}
	opts := testOptions(fs, sched)
	for round := range uint64(3) {
		l := mustOpen(t, opts)
		mustAppend(t, l, Write{Group: 1, Entries: entries(round*20+1, round*20+21, 1, 700)})
		mustSync(t, l)
		sched.runIdle()
		if last := l.Group(1).LastIndex(); last != round*20+20 {
			t.Fatalf("round %d: last index %d", round, last)
		}
		mustClose(t, l)
	}
}
