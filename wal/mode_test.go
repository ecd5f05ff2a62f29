package wal

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

func TestModesAreOneSetting(t *testing.T) {
	for text, want := range map[string]Mode{
		"group": {}, "sync": ModeSync, "unsafe-os": ModeUnsafeOS, "memory": ModeMemory,
		"group-delay(3ms,65536,100)":    ModeGroupDelay(3*time.Millisecond, 65536, 100),
		"group-delay(1s,0,0)":           ModeGroupDelay(time.Second, 0, 0),
		"unsafe-interval(3s,1048576)":   ModeUnsafeInterval(3*time.Second, 1<<20),
		"unsafe-interval(500ms,123456)": ModeUnsafeInterval(time.Second/2, 123456),
	} {
		got, err := ParseMode(text)
		if err != nil || got != want || got.String() != text || got.Validate() != nil {
			t.Errorf("%s: %v (%s), %v", text, got, got.String(), err)
		}
	}
	if m, err := ParseMode("group-delay(3ms)"); err != nil || m != ModeGroupDelay(3*time.Millisecond, 0, 0) {
		t.Errorf("%v, %v", m, err)
	}
	for text, says := range map[string]string{
		"fast": "unknown", "group(3ms)": "takes no numbers", "group-delay": "more than 0", "group-delay(2s)": "at most 1s",
		"group-delay(3ms,-1)": "use 0 for none", "unsafe-interval(1s,2,3)": "takes no number of entries", "group-delay(3ms": "is not (delay)",
		"group-delay(x)": "x", "group-delay(1ms,x)": "x", "group-delay(1ms,1,x)": "x", "group-delay(1ms,1,1,1)": "is not (delay)",
	} {
		if m, err := ParseMode(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v; want %q", text, m, err, says)
		}
	}
	if m := (Mode{Kind: 17}); m.Unsafe() || m.String() != "ModeKind(17)" || m.Validate() == nil {
		t.Errorf("%v", m)
	}
}

// What each mode promises (docs/internals/durability.md §3). Does an append of entries, or of a vote, count
// at once, after a wait, or after a flush? Does a power cut keep what counted?
func TestModesPromise(t *testing.T) {
	for _, row := range []struct {
		mode                Mode
		entries, vote       string
		keepsEntries, vote2 bool
	}{
		{ModeSync, "counts", "counts", true, true},
		{ModeGroup, "flush", "flush", true, true},
		{ModeGroupDelay(3*time.Millisecond, 0, 0), "wait 3ms", "flush", true, true},
		{ModeUnsafeInterval(time.Second, 0), "counts", "flush", false, true},
		{ModeUnsafeOS, "counts", "flush", false, true},
	} {
		for what, w := range map[string]Write{
			"entries":    {Group: 1, Entries: entries(1, 3, 1, 100)},
			"vote":       {Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 3}},
			"membership": {Group: 1, Entries: []raftpb.Entry{{Index: 1, Term: 1, Type: raftpb.EntryConfChangeV2}}},
			"snapshot":   {Group: 1, Snapshot: Snapshot{9, 1}},
		} {
			t.Run(fmt.Sprintf("%s/%s", row.mode, what), func(t *testing.T) {
				fs, want := crashfs.New(), row.vote
				opts := testOptions(fs, &manual{})
				opts.Mode, opts.Clock = row.mode, &fakeClock{}
				l := mustOpen(t, opts)
				mustAppend(t, l, w)
				if what == "entries" {
					want = row.entries
				}
				f, wait, err := l.TakeSync()
				got := "counts"
				if wait > 0 {
					got = fmt.Sprint("wait ", wait)
				}
				if f != nil {
					got = "flush"
					mustComplete(t, f)
				}
				if err != nil || got != want {
					t.Errorf("%s, %v; want %s", got, err, want)
				}
				mustSync(t, l)
				fs.Crash(crashfs.LoseAll, nil)
				l, kept := mustOpen(t, opts), twin{}
				kept[1] = groupState{}
				if what != "entries" || row.keepsEntries {
					kept.apply([]Write{w})
				}
				kept.check(t, l)
			})
		}
	}
}

// A commit index alone is not a vote.
func TestUnsafeModesDoNotSyncCommits(t *testing.T) {
	opts := testOptions(crashfs.New(), &manual{})
	opts.Mode = ModeUnsafeOS
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 3}, Entries: entries(1, 9, 1, 10)})
	mustSync(t, l)
	before := l.Stats().Syncs
	mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 3, Commit: 4}})
	mustSync(t, l)
	if n := l.Stats().Syncs - before; before == 0 || n != 0 {
		t.Errorf("%d syncs for the vote, %d for a commit", before, n)
	}
}

// The delay of group-delay begins at the first append, not at the last flush. It ends early when there are
// enough bytes or entries.
func TestGroupDelay(t *testing.T) {
	clock := &fakeClock{now: time.Hour}
	opts := testOptions(crashfs.New(), &manual{})
	opts.Mode, opts.Clock = ModeGroupDelay(5*time.Millisecond, 3000, 10), clock
	l, next := mustOpen(t, opts), uint64(1)
	put := func(n uint64, size int) {
		mustAppend(t, l, Write{Group: 1, Entries: entries(next, next+n, 1, size)})
		next += n
	}
	expect := func(wait time.Duration) {
		t.Helper()
		f, got, err := l.TakeSync()
		if err != nil || got != wait || (f != nil) != (wait == 0) {
			t.Fatalf("flush %v, wait %v, %v; want %v", f, got, err, wait)
		}
		if f != nil {
			mustComplete(t, f)
		}
	}
	put(1, 10)
	expect(5 * time.Millisecond)
	clock.advance(3 * time.Millisecond)
	put(1, 10)
	expect(2 * time.Millisecond)
	clock.advance(2 * time.Millisecond)
	expect(0)
	clock.advance(time.Second)
	put(9, 10)
	expect(5 * time.Millisecond)
	put(1, 10) // ten entries
	expect(0)
	put(1, 3000) // enough bytes
	expect(0)
	put(1, 10)
	mustSync(t, l) // Sync does not wait for the delay
	wantDurable(t, l, 1, next-1)
}

// In unsafe-interval the helper syncs, without a caller, after the interval from the first append, or after a
// number of bytes.
func TestUnsafeInterval(t *testing.T) {
	fs, sched, clock := crashfs.New(), &manual{}, &fakeClock{}
	opts := testOptions(fs, sched)
	opts.Mode, opts.Clock = ModeUnsafeInterval(time.Second, 2000), clock
	l := mustOpen(t, opts)
	step := func(d time.Duration, n, size int, wantSyncs uint64) {
		t.Helper()
		before := l.Stats().Syncs
		if n > 0 {
			next := l.Group(1).LastIndex() + 1
			mustAppend(t, l, Write{Group: 1, Entries: entries(next, next+uint64(n), 1, size)})
		}
		mustSync(t, l)
		clock.advance(d)
		sched.runIdle()
		if got := l.Stats().Syncs - before; got != wantSyncs {
			t.Errorf("%d syncs, want %d", got, wantSyncs)
		}
	}
	sched.runIdle()
	step(900*time.Millisecond, 1, 10, 0)
	step(90*time.Millisecond, 1, 10, 0)
	step(20*time.Millisecond, 1, 10, 1)
	wantDurable(t, l, 1, 3)
	step(time.Hour, 0, 0, 0)
	step(0, 1, 2000, 1)
	mustClose(t, l)

	// If a sync of the helper fails, the log stops.
	l = mustOpen(t, opts)
	mustAppend(t, l, add(5, 6, 1))
	fs.SetHook(crashfs.FailNth(crashfs.OpSync, 1, errDisk))
	clock.advance(time.Hour)
	sched.runIdle()
	if err := l.Append([]Write{add(6, 7, 1)}); err == nil {
		t.Error("an append after a failed sync succeeded")
	}
}

// A vote does not count while the helper's flush that covers it is still under way.
func TestVoteWaitsForTheFlushUnderWay(t *testing.T) {
	disk, clock, sched := newHungDisk(), &fakeClock{}, &manual{}
	opts := testOptions(disk, sched)
	opts.Mode, opts.Clock = ModeUnsafeInterval(time.Second, 0), clock
	l := mustOpen(t, opts)
	sched.runIdle()
	mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 3}})
	clock.advance(time.Second)
	disk.hang()
	rested := make(chan struct{})
	go func() {
		sched.runIdle()
		close(rested)
	}()
	<-disk.begun
	f := mustTake(t, l)
	disk.end <- struct{}{}
	<-rested
	syncs := l.Stats().Syncs
	mustComplete(t, f)
	if l.Stats().Syncs != syncs {
		t.Error("a flush of durable entries synced again")
	}
}

// In mode memory the log touches no file. Until the process ends it behaves like any other log.
func TestMemoryMode(t *testing.T) {
	sched := &manual{}
	opts := Options{Scheduler: sched, Mode: ModeMemory, SegmentBytes: 4096, CacheBytes: 1000}
	l, want := mustOpen(t, opts), twin{}
	for i := uint64(1); i < 400; i++ {
		w := []Write{{Group: 1, HardState: raftpb.HardState{Term: i}, Entries: entries(i, i+1, i, 200)}}
		if i > 50 {
			w = append(w, Write{Group: 1, CompactThrough: i - 50})
		}
		mustAppend(t, l, w...)
		want.apply(w)
		sched.runIdle()
	}
	want.check(t, l)
	if f, wait, err := l.TakeSync(); f != nil || wait != 0 || err != nil {
		t.Errorf("%v, %v, %v", f, wait, err)
	}
	if s := l.Stats(); s.Dropped == 0 || s.Recycled == 0 || s.ZeroedBytes != 0 {
		t.Errorf("%+v", s)
	}
	mustClose(t, l)
	if last := mustOpen(t, opts).Group(1).LastIndex(); last != 0 {
		t.Errorf("%d entries came back", last)
	}
}
