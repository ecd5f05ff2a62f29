package wal

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// If there is no descriptor or memory for an empty segment, an append is refused and changes nothing. Later,
// when there is one, the append succeeds. (Seen: it stopped the log for good.)
func TestOutOfDescriptors(t *testing.T) {
	for _, kind := range []crashfs.OpKind{crashfs.OpCreate, crashfs.OpOpen} {
		for _, cause := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
			for _, spares := range []int{0, 1, 3} {
				t.Run(fmt.Sprintf("%s/%v/%d spares", kind, cause, spares), func(t *testing.T) { runOutOfDescriptors(t, kind, cause, spares) })
			}
		}
	}
}

func runOutOfDescriptors(t *testing.T, kind crashfs.OpKind, cause error, spares int) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	l, want := mustOpen(t, opts), twin{}
	want.append(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 1}})
	for i := uint64(1); len(l.supply.spares) < spares; i++ {
		want.append(t, l, add(i, i+1, 1), Write{Group: 2, Entries: entries(i, i+1, 1, 900)}, Write{Group: 2, CompactThrough: i})
		sched.runIdle()
	}
	had := len(l.supply.spares)
	fs.SetHook(crashfs.When{Kind: kind}.Do(cause))
	refused := []Write{{Group: 1, HardState: raftpb.HardState{Term: 2}}, {Group: 3, Entries: entries(1, 80, 1, 500)}}
	for range 3 {
		err := l.Append(refused)
		if !errors.Is(err, ErrDiskFull) || !errors.Is(err, cause) || errors.Is(err, ErrDiskFailed) {
			if kind == crashfs.OpOpen && err == nil {
				break // the append opened no file
			}
			t.Fatalf("append: %v", err)
		}
		sched.runIdle()
	}
	if have := len(l.supply.spares); kind == crashfs.OpOpen && have != had {
		t.Errorf("%d spares are left of %d, and none could be opened", have, had)
	}
	want.check(t, l)
	mustSync(t, l)
	fs.SetHook(nil)
	want.check(t, mustOpen(t, testOptions(fs.Image(crashfs.LoseAll, nil), &manual{})))
	want.append(t, l, refused...)
	sched.runIdle()
	want.append(t, l, Write{Group: 4, Entries: entries(1, 20, 1, 500)})
	if len(l.supply.spares) == 0 {
		t.Error("the reserve is gone")
	}
	want.check(t, l)
	mustClose(t, l)
	want.check(t, mustOpen(t, opts))
}

// counted is a disk that counts its open descriptors.
type counted struct {
	vfs.FS
	now, most atomic.Int64
}

func (c *counted) add() {
	for n := c.now.Add(1); ; {
		most := c.most.Load()
		if n <= most || c.most.CompareAndSwap(most, n) {
			return
		}
	}
}

func (c *counted) wrap(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	c.add()
	return countedFile{f, c}, nil
}

func (c *counted) Create(name string) (vfs.File, error) { return c.wrap(c.FS.Create(name)) }
func (c *counted) Open(name string) (vfs.File, error)   { return c.wrap(c.FS.Open(name)) }
func (c *counted) OpenDirect(name string) (vfs.BlockWriter, error) {
	w, err := c.FS.OpenDirect(name)
	if err != nil {
		return nil, err
	}
	c.add()
	return countedWriter{w, c}, nil
}

type countedFile struct {
	vfs.File
	c *counted
}

func (f countedFile) Close() error {
	f.c.now.Add(-1)
	return f.File.Close()
}

type countedWriter struct {
	vfs.BlockWriter
	c *counted
}

func (f countedWriter) Close() error {
	f.c.now.Add(-1)
	return f.BlockWriter.Close()
}

// A log of 1600 segments, as many as 100 GiB of log have, uses at most 64 descriptors while it is written,
// read and opened. (Seen: two for each segment.)
func TestDescriptorsAreBounded(t *testing.T) {
	enumerates(t)
	const segments = 1600
	disk, sched := &counted{FS: crashfs.New()}, &manual{}
	opts := testOptions(disk, sched)
	opts.CacheBytes = -1
	l, last := mustOpen(t, opts), uint64(0)
	for l.Stats().Segments < segments {
		mustAppend(t, l, add(last+1, last+20, 1))
		last += 19
		sched.runIdle()
	}
	read := func() {
		for i := uint64(1); i <= last; i += 10 {
			if es, err := l.Group(1).Entries(i, i+1, 1<<20); err != nil || !sameEntry(es[0], entry(i, 1, 30)) {
				t.Fatal(i, err)
			}
		}
	}
	read()
	mustClose(t, l)
	if n := disk.now.Load(); n != 0 {
		t.Errorf("%d descriptors are open after Close", n)
	}
	l = mustOpen(t, opts)
	read()
	if n := disk.most.Load(); n > 64 {
		t.Errorf("%d segments took %d descriptors, want at most 64", l.Stats().Segments, n)
	}
	mustClose(t, l)
	in, err := Inspect(t.Context(), InspectOptions{FS: disk, Dir: testDir})
	if err != nil || len(in.Findings) > 0 {
		t.Fatal(in.Findings, err)
	}
	if n := disk.most.Load(); n > 64 {
		t.Errorf("an inspection took %d descriptors", n)
	}
	if err := in.Close(); err != nil || disk.now.Load() != 0 {
		t.Errorf("%d descriptors are open after the inspection, %v", disk.now.Load(), err)
	}
}

// Readers of other files do not close a file that is being read. A file that was closed is opened again for
// the next read. If there is no descriptor, only the read fails.
func TestReadersOfColdSegments(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.CacheBytes = -1
	l, last := mustOpen(t, opts), uint64(0)
	for l.Stats().Segments < 4*maxColdFiles {
		mustAppend(t, l, add(last+1, last+20, 1))
		last += 19
		sched.runIdle()
	}
	read := func(i uint64) error {
		es, err := l.Group(1).Entries(i, i+1, 1<<20)
		if err == nil && !sameEntry(es[0], entry(i, 1, 30)) {
			err = fmt.Errorf("read entry %+v", es[0])
		}
		return err
	}
	reached, release, done := make(chan struct{}), make(chan struct{}), make(chan error)
	fs.SetHook(crashfs.When{Kind: crashfs.OpRead, Nth: 1}.Call(func(crashfs.Op) {
		close(reached)
		<-release
	}))
	go func() { done <- read(1) }()
	<-reached
	for i := uint64(1); i <= last; i++ {
		if err := read(i); err != nil {
			t.Fatal(i, err)
		}
	}
	close(release)
	if err := <-done; err != nil {
		t.Error(err)
	}
	fs.SetHook(crashfs.When{Kind: crashfs.OpOpen}.Do(syscall.EMFILE))
	failed := 0
	for i := uint64(1); i <= last; i += 10 {
		if err := read(i); errors.Is(err, syscall.EMFILE) {
			failed++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	fs.SetHook(nil)
	if failed == 0 {
		t.Error("no segment had to be opened")
	}
	for i := uint64(1); i <= last; i += 10 {
		if err := read(i); err != nil {
			t.Fatal(err)
		}
	}
	mustAppend(t, l, add(last+1, last+20, 1))
	mustSync(t, l)
	mustClose(t, l)
	if err := read(1); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// A failed sync of the directory is final, even if only the helper asked for it: the name may be lost, and
// the next sync would not report that. (Seen: the log wrote a warning, and synced again.)
func TestFailedDirectorySyncIsFinal(t *testing.T) {
	for nth := 1; nth <= 2; nth++ { // the syncs for the next segment and for the reserve
		fs, sched := crashfs.New(), &manual{}
		opts := testOptions(fs, sched)
		l := mustOpen(t, opts)
		mustAppend(t, l, add(1, 3, 1))
		fs.SetHook(crashfs.FailNth(crashfs.OpSyncDir, nth, syscall.EIO))
		sched.runIdle()
		if err := l.Append([]Write{add(3, 4, 1)}); !errors.Is(err, ErrDiskFailed) || !errors.Is(err, syscall.EIO) {
			t.Errorf("append after sync %d of the directory failed: %v", nth, err)
		}
		if err := l.Sync(); !errors.Is(err, ErrDiskFailed) {
			t.Errorf("sync: %v", err)
		}
		_ = l.Close() // returns the same error
		if last := mustOpen(t, opts).Group(1).LastIndex(); last != 2 {
			t.Errorf("the last index is %d", last)
		}
	}
}

// A file whose sync has failed is not synced again. The log removes it and uses another one instead. If the
// file cannot be removed, the log stops when it needs that segment.
func TestFailedFileSyncIsNotRetried(t *testing.T) {
	for _, kept := range []bool{false, true} {
		fs, sched := crashfs.New(), &manual{}
		l, want := mustOpen(t, testOptions(fs, sched)), twin{}
		broken, syncs := map[string]bool{}, 0
		fs.SetHook(func(op crashfs.Op) error {
			switch {
			case op.Kind == crashfs.OpRemove && kept:
				return syscall.EIO
			case op.Kind == crashfs.OpCreate:
				delete(broken, op.Name)
			case op.Kind == crashfs.OpSync && op.Name == l.table.segmentPath(2):
				if broken[op.Name] {
					t.Errorf("%s is synced again", op.Name)
				}
				if syncs++; syncs == 1 {
					broken[op.Name] = true
					return syscall.EIO
				}
			}
			return nil
		})
		sched.runIdle()
		for i := uint64(1); i < 10; i++ {
			w := []Write{{Group: 1, Entries: entries(i, i+1, 1, 900)}}
			if err := l.Append(w); kept && errors.Is(err, ErrDiskFailed) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			want.apply(w)
			mustSync(t, l)
			sched.runIdle()
		}
		if stopped := l.failure() != nil; stopped != kept || syncs == 0 {
			t.Errorf("the file stays: %v; the log has stopped: %v; %d syncs", kept, stopped, syncs)
		}
		want.check(t, l)
		fs.SetHook(nil)
		_ = l.Close()
		want.check(t, mustOpen(t, testOptions(fs, &manual{})))
	}
}

// There is a descriptor to open a spare, and none to open it for direct writes. The append is refused, and
// the spare stays one.
func TestOutOfDescriptorsForDirectWrites(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	l, want := mustOpen(t, opts), twin{}
	for i := uint64(1); len(l.supply.spares) < 2; i++ {
		want.append(t, l, Write{Group: 2, Entries: entries(i, i+1, 1, 900)}, Write{Group: 2, CompactThrough: i})
		sched.runIdle()
	}
	had, opened := len(l.supply.spares), 0
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpCreate {
			return syscall.EMFILE
		}
		if op.Kind == crashfs.OpOpen && strings.HasSuffix(op.Name, spareSuffix) {
			if opened++; opened%2 == 0 {
				return syscall.EMFILE
			}
		}
		return nil
	})
	err := l.Append([]Write{{Group: 3, Entries: entries(1, 80, 1, 500)}})
	if !errors.Is(err, ErrDiskFull) || !errors.Is(err, syscall.EMFILE) || opened < 2 {
		t.Errorf("append: %v, spares were opened %d times", err, opened)
	}
	if have := len(l.supply.spares); have != had {
		t.Errorf("%d spares are left of %d", have, had)
	}
	fs.SetHook(nil)
	want.append(t, l, Write{Group: 3, Entries: entries(1, 80, 1, 500)})
	want.check(t, l)
	mustClose(t, l)
}

// The header of a segment says that it is written directly only if it is: not in a log that cuts what it
// writes.
func TestSegmentsThatAreCutAreNotDirect(t *testing.T) {
	for _, cuts := range []bool{false, true} {
		l := mustOpen(t, testOptions(crashfs.New(), &manual{}))
		l.cuts = cuts
		for i, from := uint64(1), l.tail.seg.id; l.tail.seg.id < from+2; i++ {
			mustAppend(t, l, add(i, i+1, 1))
			mustSync(t, l)
		}
		if direct := l.tail.seg.head.Direct; direct == cuts {
			t.Errorf("cuts %v: the header says that writes are direct: %v", cuts, direct)
		}
		mustClose(t, l)
	}
}
