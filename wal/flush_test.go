package wal

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// The tests of this file follow the points of the correct flush (docs/internals/durability.md §5) that
// concern the log. Points 5 to 7 concern the core: a follower acknowledges no more than is verified, commit
// has no clamp, and what a leader that stepped down does with a late flush. For those, the log must never
// show a DurableIndex that is too high.

// hungDisk is a disk whose syncs of files report on begun that they have begun, and end when the test says
// so.
type hungDisk struct {
	*crashfs.FS
	begun, end chan struct{}
}

func newHungDisk() *hungDisk {
	return &hungDisk{crashfs.New(), make(chan struct{}), make(chan struct{})}
}

func (d *hungDisk) hang() {
	d.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync {
			d.begun <- struct{}{}
			<-d.end
		}
		return nil
	})
}

func mustTake(t testing.TB, l *Log) *Flush {
	t.Helper()
	f, wait, err := l.TakeSync()
	if err != nil || f == nil || wait != 0 {
		t.Fatalf("TakeSync: %v, wait %v, %v", f, wait, err)
	}
	return f
}

func mustComplete(t testing.TB, f *Flush) (more bool) {
	t.Helper()
	if err := f.Wait(); err != nil {
		t.Fatal(err)
	}
	more, err := f.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return more
}

func wantDurable(t testing.TB, l *Log, group, index uint64) {
	t.Helper()
	if got := l.Group(group).DurableIndex(); got != index {
		t.Errorf("group %d is durable through %d, want %d", group, got, index)
	}
}

func add(lo, hi, term uint64) Write { return Write{Group: 1, Entries: entries(lo, hi, term, 30)} }

// Points 1 and 2: an append is one write; while an fdatasync runs, appends and reads do not wait for it.
func TestFlush02NobodyWaitsForTheDisk(t *testing.T) {
	disk := newHungDisk()
	opts := testOptions(disk, &manual{})
	opts.CacheBytes = -1
	l := mustOpen(t, opts)
	mustAppend(t, l, add(1, 3, 1))
	disk.hang()
	f, done := mustTake(t, l), make(chan error)
	go func() { done <- f.Wait() }()
	<-disk.begun
	mustAppend(t, l, add(3, 9, 1))
	if es, err := l.Group(1).Entries(1, 9, ^uint64(0)); err != nil || len(es) != 8 {
		t.Errorf("read %d entries, %v", len(es), err)
	}
	wantDurable(t, l, 1, 0)
	disk.end <- struct{}{}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if more, err := f.Complete(); !more || err != nil {
		t.Errorf("more %v, %v", more, err)
	}
	disk.SetHook(nil)
	// Points 4 and 9: what was captured is durable, and what was written since is not. The next flush serves it.
	wantDurable(t, l, 1, 2)
	if mustComplete(t, mustTake(t, l)) {
		t.Error("Complete reports more after everything was flushed")
	}
	wantDurable(t, l, 1, 8)
	if f, wait, err := l.TakeSync(); f != nil || wait != 0 || err != nil {
		t.Errorf("nothing is pending, but TakeSync returns %v, %v, %v", f, wait, err)
	}
}

// Point 3: an error makes nothing durable, and the log does not sync again.
func TestFlush03ErrorIsFinal(t *testing.T) {
	fs := crashfs.New()
	l := mustOpen(t, testOptions(fs, &manual{}))
	mustAppend(t, l, add(1, 3, 1))
	mustSync(t, l)
	mustAppend(t, l, add(3, 5, 1))
	f := mustTake(t, l)
	fs.SetHook(crashfs.FailNth(crashfs.OpSync, 1, syscall.EIO))
	if err := f.Wait(); !errors.Is(err, ErrDiskFailed) || !errors.Is(err, syscall.EIO) {
		t.Errorf("wait: %v", err)
	}
	if _, err := f.Complete(); !errors.Is(err, ErrDiskFailed) {
		t.Errorf("complete: %v", err)
	}
	wantDurable(t, l, 1, 2)
	if _, _, err := l.TakeSync(); !errors.Is(err, ErrDiskFailed) {
		t.Errorf("take: %v", err)
	}
}

// Point 3, stale completion: entries were truncated and replaced after a flush captured them. Completing the
// flush makes neither the old nor the new ones durable.
func TestFlush03StaleCompletion(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	l := mustOpen(t, opts)
	mustAppend(t, l, add(1, 11, 1))
	stale := mustTake(t, l)
	mustAppend(t, l, add(5, 8, 2)) // the entries of a new leader
	mustComplete(t, stale)
	wantDurable(t, l, 1, 4)
	mustComplete(t, mustTake(t, l))
	wantDurable(t, l, 1, 7)

	// Two flushes are under way, and the older one is completed last.
	mustAppend(t, l, add(8, 11, 2))
	first := mustTake(t, l)
	mustAppend(t, l, add(9, 14, 3))
	second := mustTake(t, l)
	mustComplete(t, second)
	wantDurable(t, l, 1, 13)
	mustComplete(t, first)
	wantDurable(t, l, 1, 13)
	fs.Crash(crashfs.LoseAll, nil)
	l = mustOpen(t, opts)
	if last := l.Group(1).LastIndex(); last != 13 {
		t.Errorf("a power cut leaves %d entries", last)
	}
	wantDurable(t, l, 1, 13)
}

// Point 8: a truncation lowers the durable index. The replacement raises it again when it is durable.
func TestFlush08Truncation(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New(), &manual{}))
	mustAppend(t, l, add(1, 11, 1))
	mustSync(t, l)
	wantDurable(t, l, 1, 10)
	mustAppend(t, l, Write{Group: 1, TruncateFrom: 6})
	wantDurable(t, l, 1, 5)
	mustAppend(t, l, add(6, 9, 2))
	wantDurable(t, l, 1, 5)
	mustSync(t, l)
	wantDurable(t, l, 1, 8)
	mustAppend(t, l, Write{Group: 1, Snapshot: Snapshot{100, 5}})
	wantDurable(t, l, 1, 0)
	mustSync(t, l)
	wantDurable(t, l, 1, 100)
}

// Point 10: the bytes that are not durable are bounded. Beyond the bound, entries are refused, other writes
// are not.
func TestFlush10Backlog(t *testing.T) {
	opts := testOptions(crashfs.New(), &manual{})
	opts.MaxPendingBytes = 1000
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 4, 1, 2000/3)}) // a single append may exceed the bound
	err := l.Append([]Write{add(4, 5, 1)})
	if !errors.Is(err, ErrBacklog) || l.Group(1).LastIndex() != 3 || l.Stats().Backlogged != 1 {
		t.Errorf("%v; last index %d", err, l.Group(1).LastIndex())
	}
	if l.Stats().PendingBytes < 2000 {
		t.Errorf("%d bytes are pending", l.Stats().PendingBytes)
	}
	mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 9}})
	mustComplete(t, mustTake(t, l))
	mustAppend(t, l, add(4, 5, 1))
	if pending := l.Stats().PendingBytes; pending != uint64(record.Bytes(30)) {
		t.Errorf("%d bytes are pending", pending)
	}
}

// Point 11: Close waits for the flush under way, and syncs what was appended after it.
func TestFlush11Close(t *testing.T) {
	disk := newHungDisk()
	opts := testOptions(disk, &manual{})
	l := mustOpen(t, opts)
	mustAppend(t, l, add(1, 3, 1))
	disk.hang()
	f, waited, closed := mustTake(t, l), make(chan error), make(chan error)
	go func() { waited <- f.Wait() }()
	<-disk.begun
	mustAppend(t, l, add(3, 5, 1))
	go func() { closed <- l.Close() }()
	select {
	case err := <-closed:
		t.Fatalf("closed while a flush was under way: %v", err)
	case disk.end <- struct{}{}:
	}
	if err := <-waited; err != nil {
		t.Errorf("the flush under way: %v", err)
	}
	for closing := true; closing; {
		select {
		case <-disk.begun:
			disk.end <- struct{}{}
		case err := <-closed:
			if err != nil {
				t.Fatal(err)
			}
			closing = false
		}
	}
	disk.SetHook(nil)
	disk.Crash(crashfs.LoseAll, nil)
	if last := mustOpen(t, opts).Group(1).LastIndex(); last != 4 {
		t.Errorf("after close and a power cut the last index is %d", last)
	}
}

// Point 12: each flush is counted, timed, and added to the bucket of its latency.
func TestFlush12Metrics(t *testing.T) {
	opts := testOptions(crashfs.New(), &manual{})
	clock := &fakeClock{}
	opts.Clock = clock
	l := mustOpen(t, opts)
	opts.FS.(*crashfs.FS).SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpSync {
			clock.now += 3 * time.Millisecond
		}
		return nil
	})
	mustAppend(t, l, add(1, 11, 1))
	f := mustTake(t, l)
	clock.now += time.Millisecond // the flush waits in a queue
	mustComplete(t, f)
	s := l.Stats()
	if s.Syncs != 1 || s.SyncedEntries != 10 || s.SyncNanos != uint64(3*time.Millisecond) || s.QueueNanos != uint64(time.Millisecond) || s.SyncTimes[12] != 1 {
		t.Errorf("%+v", s)
	}
	for d, want := range map[time.Duration]int{-1: 0, 0: 0, time.Microsecond: 1, 2 * time.Microsecond: 2, time.Hour: latencyBuckets - 1} {
		if got := latencyBucket(d); got != want {
			t.Errorf("%v is in bucket %d, want %d", d, got, want)
		}
	}
}

// fakeClock is a clock that the test moves.
type fakeClock struct {
	now    time.Duration
	timers []*fakeTimer
}

type fakeTimer struct {
	clock *fakeClock
	f     func()
	due   atomic.Int64 // a time.Duration; 0: not set. Atomic, because Close may stop the timer while a flush sets it
}

func (c *fakeClock) Now() time.Duration                         { return c.now }
func (c *fakeClock) Boottime() time.Duration                    { return c.now }
func (c *fakeClock) Every(time.Duration, func() int) env.Ticker { return nil }
func (c *fakeClock) Timer(f func()) env.Timer {
	t := &fakeTimer{clock: c, f: f}
	c.timers = append(c.timers, t)
	return t
}

func (t *fakeTimer) Set(d time.Duration) { t.due.Store(int64(t.clock.now + d)) }
func (t *fakeTimer) Stop()               { t.due.Store(0) }

// advance moves the clock and fires the timers that are due.
func (c *fakeClock) advance(d time.Duration) {
	c.now += d
	for _, t := range c.timers {
		if due := t.due.Load(); due != 0 && due <= int64(c.now) {
			t.due.Store(0)
			t.f()
		}
	}
}
