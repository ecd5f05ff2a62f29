package wal

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// An append that continues in the next segment finds no space in its first or second write call. This happens
// although the blocks are preallocated, if the filesystem copies on write or a thin volume is full. The log
// must undo the roll together with the append.
func TestRefusedRollLeavesNothing(t *testing.T) {
	for seed := range uint64(160) {
		call, synced, loss := 1+int(seed%2), seed/2%2 == 0, crashfs.LoseNothing
		if seed/4%2 == 0 {
			loss = crashfs.LoseAll
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			disk, sched := crashfs.New(), &manual{}
			opts := testOptions(disk, sched)
			opts.SegmentBytes = 16 << 10
			l, want := mustOpen(t, opts), twin{}
			do := func(w Write) {
				mustAppend(t, l, w)
				want.apply([]Write{w})
			}
			do(Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 21, 1, 500)})
			if seed/8%2 == 0 {
				do(Write{Group: 1, Entries: entries(21, 28, 1, 600)}) // the next record does not fit
			}
			if synced {
				mustSync(t, l)
			}
			sched.runIdle()
			tail := l.tail.seg
			disk.SetHook(crashfs.When{Kind: crashfs.OpWrite, Name: "*.wal", Nth: call}.Do(crashfs.Scattered(seed, syscall.ENOSPC)))
			last := l.Group(1).LastIndex()
			vote := Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 1}}
			err := l.Append([]Write{vote, {Group: 1, Entries: entries(last+1, last+25, 2, 500)}})
			disk.SetHook(nil)
			if err == nil && call == 2 && seed/8%2 == 0 {
				t.Skip("the append took one write call")
			}
			if !errors.Is(err, ErrDiskFull) {
				t.Fatalf("the disk is full, and the log says: %v", err)
			}
			if l.tail.seg != tail {
				t.Errorf("the tail is segment %d", l.tail.seg.id)
			}
			switch seed / 16 % 3 {
			case 0:
				do(vote)
			case 1:
				do(vote)
				do(Write{Group: 1, Entries: entries(last+1, last+25, 2, 500)})
			}
			if seed/32%2 == 0 {
				sched.runIdle()
			}
			want.check(t, l)
			if seed%5 == 0 {
				mustClose(t, l)
			} else {
				mustSync(t, l)
			}
			disk.Crash(loss, nil)
			want.check(t, mustOpen(t, opts))
		})
	}
}

// The cleaner finds no space for its records. The log must not stop because of that.
func TestCleaningOnAFullThinDisk(t *testing.T) {
	stopped := 0
	for nth := 1; nth < 12; nth++ {
		disk, sched := crashfs.New(), &manual{}
		opts := testOptions(disk, sched)
		l, want := mustOpen(t, opts), twin{}
		do := func(w Write) {
			mustAppend(t, l, w)
			want.apply([]Write{w})
		}
		do(Write{Group: 2, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 2, 1, 30)})
		for i := uint64(1); i < 40; i++ {
			do(Write{Group: 1, Entries: entries(i, i+1, 1, 700)})
			mustSync(t, l)
		}
		do(Write{Group: 1, CompactThrough: 35})
		mustSync(t, l)
		full := 0
		disk.SetHook(func(op crashfs.Op) error {
			if op.Kind == crashfs.OpWrite && op.Name == l.tail.seg.path {
				if full++; full == nth {
					return crashfs.Scattered(uint64(nth), syscall.ENOSPC)
				}
			}
			return nil
		})
		sched.runIdle()
		disk.SetHook(nil)
		if err := l.failure(); err != nil {
			t.Fatalf("write %d: %v", nth, err)
		}
		if full >= nth {
			stopped++
		}
		do(Write{Group: 1, Entries: entries(40, 41, 1, 700)})
		sched.runIdle()
		mustSync(t, l)
		want.check(t, l)
		disk.Crash(crashfs.LoseAll, nil)
		want.check(t, mustOpen(t, opts))
	}
	if stopped == 0 {
		t.Error("cleaning never found the disk full")
	}
}
