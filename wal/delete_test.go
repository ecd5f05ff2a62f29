package wal

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// A deleted group is empty, and the log remembers that it was deleted: for readers, after a restart, and
// after the segments of its records are gone, which takes the cleaner writing the tombstone again. A write to
// it is refused, and the other writes of the same append with it.
func TestDeletedGroupIsGoneForGood(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	l, want := mustOpen(t, opts), twin{}
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
		if !slices.Equal(in.Deleted, want.deleted()) {
			t.Errorf("an inspection shows the deleted groups %d, want %d", in.Deleted, want.deleted())
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
		if d := (groupState{deleted: true}).diff(l, 1); d != "" || g.DurableIndex() != 0 || !g.Deleted() {
			t.Errorf("durable %d, deleted %v, %s", g.DurableIndex(), g.Deleted(), d)
		}
	}
	refuses := func() {
		t.Helper()
		if slices.Contains(l.Groups(), 1) || !l.Group(1).Deleted() {
			t.Error("a deleted group is among the others")
		}
		for _, w := range []Write{{HardState: raftpb.HardState{Term: 9}}, {Snapshot: Snapshot{70, 6}}, {Entries: entries(1, 2, 1, 1)}, {}} {
			w.Group = 1
			err := l.Append([]Write{{Group: 2, Entries: entries(3, 4, 1, 100)}, w})
			var invalid *InvalidWriteError
			if !errors.Is(err, ErrDeleted) || !errors.Is(err, ErrInvalidWrite) || !errors.As(err, &invalid) || invalid.Group != 1 {
				t.Errorf("a write to a deleted group: %v", err)
			}
		}
		want.check(t, l)
	}
	refuses()
	do(Write{Group: 1, Delete: true})
	reopen()
	refuses()
	do(Write{Group: 5, Delete: true}, Write{Group: 5, Delete: true}) // never written
	if err := l.Append([]Write{{Group: 6, Delete: true}, {Group: 6, Entries: entries(1, 2, 1, 1)}}); !errors.Is(err, ErrDeleted) {
		t.Errorf("a write behind the deletion of its group: %v", err)
	}
	for i := uint64(1); l.Stats().Dropped < 7; i++ {
		do(Write{Group: 3, Entries: entries(i, i+1, 1, 900)}, Write{Group: 3, CompactThrough: i})
		sched.runIdle()
	}
	reopen()
	refuses()
}

// The log writes tombstones again and again, and keeps all of them, in few segments.
func TestTombstonesMoveOn(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	l, want := mustOpen(t, opts), twin{}
	for i := uint64(1); i <= 2*sweepGroups; i++ {
		w := []Write{{Group: i, HardState: raftpb.HardState{Term: 1}}, {Group: i, Delete: true}, {Group: 9999, Entries: entries(i, i+1, 1, 500)}, {Group: 9999, CompactThrough: i}}
		mustAppend(t, l, w...)
		want.apply(w)
		if i%8 == 0 {
			mustSync(t, l)
			sched.runIdle()
			if why := checkNeeds(l); why != "" {
				t.Fatal(why)
			}
		}
	}
	s := l.Stats()
	if used := s.Segments * 4096; s.Dropped < 10 || s.DeletedGroups != 2*sweepGroups || used > 3*s.DeletedGroups*48 {
		t.Errorf("%d segments for %d tombstones, %d dropped", s.Segments, s.DeletedGroups, s.Dropped)
	}
	for range 2 {
		want.check(t, l)
		mustClose(t, l)
		sched = &manual{}
		opts.Scheduler = sched
		l = mustOpen(t, opts)
	}
	if why := checkNeeds(l); why != "" {
		t.Fatal(why)
	}
}

// A log remembers a bounded number of deleted groups. One more deletion is refused with a sentence, and what
// is deleted already may be deleted again.
func TestTombstonesAreBounded(t *testing.T) {
	l := mustOpen(t, testOptions(crashfs.New(), &manual{}))
	l.table.maxDead = 3
	mustAppend(t, l, Write{Group: 1, Delete: true}, Write{Group: 2, Delete: true}, Write{Group: 1, Delete: true})
	err := l.Append([]Write{{Group: 3, Delete: true}, {Group: 4, Delete: true}})
	if !errors.Is(err, ErrInvalidWrite) || !strings.Contains(err.Error(), "remembers 2 deleted groups, and cannot remember more than 3") {
		t.Errorf("%v", err)
	}
	mustAppend(t, l, Write{Group: 3, Delete: true})
	mustAppend(t, l, Write{Group: 2, Delete: true}, Write{Group: 4, Entries: entries(1, 2, 1, 1)})
}

// Earlier builds of version 3 began a group again after its deletion. Their logs are read as they were meant:
// the group is there, and it can be deleted for good.
func TestGroupThatAnOlderLogBeganAgain(t *testing.T) {
	s := forge(1).link(nil)
	for range 2 {
		s.add(record.Header{Kind: record.KindEntry, Group: 5, Index: 1, Term: 1}, []byte("12345678"))
		s.add(record.Header{Kind: record.KindDeletion, Group: 5}, nil)
	}
	s.add(record.Header{Kind: record.KindEntry, Group: 5, Index: 1, Term: 2}, []byte("abcdefgh"))
	opts := testOptions(diskOf(t, forgedDir(s)), &manual{})
	l, want := mustOpen(t, opts), twin{}
	want.apply([]Write{{Group: 5, Entries: []raftpb.Entry{{Index: 1, Term: 2, Data: []byte("abcdefgh")}}}})
	want.check(t, l)
	if why := checkNeeds(l); why != "" {
		t.Fatal(why)
	}
	want.append(t, l, Write{Group: 5, Delete: true})
	mustClose(t, l)
	l = mustOpen(t, opts)
	want.check(t, l)
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
			if l = mustOpen(t, opts); slices.Contains(l.Groups(), 1) || !slices.Equal(l.Deleted(), []uint64{1}) {
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

// A write with a deletion may have no other part. A deletion counts when it is durable, in any mode. Deleting
// a deleted group writes nothing.
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
	mustAppend(t, l, Write{Group: 2, Delete: true})
	mustSync(t, l)
	before := l.Stats().AppendedBytes
	mustAppend(t, l, Write{Group: 2, Delete: true})
	if n := l.Stats().AppendedBytes - before; n > 0 {
		t.Errorf("a deleted group took %d bytes to delete", n)
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
