package wal

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A deleted group looks as if it was never written: for readers, after a restart, after the segments of its
// records are gone, and when the group is written again.
func TestDeletedGroupIsAsNeverWritten(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	l, want, deletions := mustOpen(t, opts), twin{}, int64(0)
	do := func(w ...Write) {
		t.Helper()
		mustAppend(t, l, w...)
		want.apply(w)
	}
	reopen := func() {
		t.Helper()
		want.check(t, l)
		mustSync(t, l)
		fs.Crash(crashfs.LoseAll, nil)
		sched = &manual{}
		opts.FS, opts.Scheduler = fs.Mount(), sched
		l = mustOpen(t, opts)
		want.check(t, l)
		in, err := Inspect(t.Context(), InspectOptions{FS: opts.FS, Dir: testDir})
		if err != nil || len(in.Findings) > 0 {
			t.Fatalf("%v, findings %+v", err, in.Findings)
		}
		for _, s := range in.Segments {
			deletions += s.Records.Count["deletion"]
		}
		_ = in.Close()
		if why := checkNeeds(l); why != "" {
			t.Fatal(why)
		}
	}
	do(Write{Group: 1, HardState: raftpb.HardState{Term: 4, Vote: 2, Commit: 2}, Entries: entries(1, 9, 3, 300)}, Write{Group: 2, Entries: entries(1, 3, 1, 100)})
	do(Write{Group: 1, CompactThrough: 2})
	old := l.Group(1)
	f, _, err := l.TakeSync() // under way while the group is deleted
	if err != nil {
		t.Fatal(err)
	}
	do(Write{Group: 1, Delete: true})
	if err := f.Wait(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Complete(); err != nil {
		t.Fatal(err)
	}
	for _, g := range []*Group{old, l.Group(1)} {
		if _, err := g.Entries(3, 4, 100); !errors.Is(err, ErrUnavailable) {
			t.Errorf("entries of a deleted group: %v", err)
		}
		if term, err := g.Term(3); !errors.Is(err, ErrUnavailable) {
			t.Errorf("term of an entry of a deleted group: %d, %v", term, err)
		}
		if d := (groupState{}).diff(l, 1); d != "" || g.DurableIndex() != 0 {
			t.Errorf("durable %d, %s", g.DurableIndex(), d)
		}
	}
	reopen()
	if slices.Contains(l.Groups(), 1) {
		t.Error("a deleted group is known after a restart")
	}
	do(Write{Group: 1, HardState: raftpb.HardState{Term: 1, Vote: 1}, Entries: entries(1, 3, 1, 50)})
	reopen()
	do(Write{Group: 1, Delete: true}, Write{Group: 1, Delete: true}, Write{Group: 1, Snapshot: Snapshot{70, 6}, Entries: entries(71, 74, 6, 50)})
	reopen()
	do(Write{Group: 1, Delete: true})
	for i := uint64(1); l.Stats().Dropped < 3; i++ {
		do(Write{Group: 3, Entries: entries(i, i+1, 1, 900)}, Write{Group: 3, CompactThrough: i})
		sched.runIdle()
	}
	reopen()
	if d := (groupState{}).diff(l, 1); d != "" || deletions == 0 {
		t.Errorf("%d deletions, %s", deletions, d)
	}
}

// In every mode a deletion counts only when it is durable: a group that comes back after a crash would vote
// again.
func TestDeletionIsDurableBeforeItCounts(t *testing.T) {
	for _, mode := range []Mode{ModeSync, ModeGroup, ModeGroupDelay(time.Second, 0, 0), ModeUnsafeInterval(time.Second, 0), ModeUnsafeOS} {
		t.Run(mode.String(), func(t *testing.T) {
			fs := crashfs.New()
			opts := testOptions(fs, &manual{})
			opts.Mode, opts.Clock = mode, &fakeClock{}
			l := mustOpen(t, opts)
			mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 3}})
			mustSync(t, l)
			mustAppend(t, l, Write{Group: 1, Delete: true})
			f, wait, err := l.TakeSync()
			if err != nil || wait != 0 {
				t.Fatalf("wait %v, %v", wait, err)
			}
			if f != nil {
				mustComplete(t, f)
			}
			fs.Crash(crashfs.LoseAll, nil)
			if l = mustOpen(t, opts); slices.Contains(l.Groups(), 1) {
				t.Error("the group is back after a crash, although its deletion counted")
			}
		})
	}
}

// The records of a deleted group hold no segment, and the cleaner does not move them.
func TestDeletedGroupPinsNothing(t *testing.T) {
	sched := &manual{}
	opts := testOptions(crashfs.New(), sched)
	l := mustOpen(t, opts)
	mustAppend(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 60, 1, 900)})
	used := l.Stats().Segments
	mustAppend(t, l, Write{Group: 1, Delete: true}, Write{Group: 2, Entries: entries(1, 8, 1, 900)})
	mustSync(t, l)
	sched.runIdle()
	if s := l.Stats(); s.Segments > 4 || s.MovedEntries > 0 || s.IndexBytes > 10*runBytes {
		t.Errorf("%d segments of %d, %+v", s.Segments, used, s)
	}
}

// A write with a deletion may have no other part. A deletion counts when it is durable, in any mode.
// Deleting a group that was never written writes nothing.
func TestDeletionRules(t *testing.T) {
	opts := testOptions(crashfs.New(), &manual{})
	opts.Mode = ModeUnsafeOS
	l := mustOpen(t, opts)
	for _, w := range []Write{
		{HardState: raftpb.HardState{Term: 1}}, {Snapshot: Snapshot{1, 1}}, {CompactThrough: 1}, {TruncateFrom: 1}, {Entries: entries(1, 2, 1, 1)},
	} {
		w.Group, w.Delete = 1, true
		if err := l.Append([]Write{w}); !errors.Is(err, ErrInvalidWrite) {
			t.Errorf("%+v: %v", w, err)
		}
	}
	mustAppend(t, l, Write{Group: 1, Delete: true})
	if n := l.Stats().AppendedBytes; n > 0 {
		t.Errorf("a group that was never written took %d bytes to delete", n)
	}
	mustAppend(t, l, Write{Group: 1, Entries: entries(1, 2, 1, 1)})
	if f, _, err := l.TakeSync(); f != nil || err != nil {
		t.Errorf("an entry waits for a flush: %v", err)
	}
	mustAppend(t, l, Write{Group: 1, Delete: true})
	if f, _, err := l.TakeSync(); f == nil || err != nil {
		t.Errorf("a deletion does not wait for a flush: %v", err)
	}
}
