package wal

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A refused append must leave nothing: not for a reader, not after a crash, and not when the first of its
// records are appended again, so that the rest would follow them.

// TestRefusedDirectWriteLeavesNothing: a direct write finds no space and reports that it wrote nothing, but
// has written some of its sectors. A full thin volume does that. The refused append must be gone, whichever
// sectors were written.
func TestRefusedDirectWriteLeavesNothing(t *testing.T) {
	for seed := range uint64(60) {
		for _, loss := range []crashfs.Loss{crashfs.LoseNothing, crashfs.LoseAll} {
			t.Run(fmt.Sprintf("%d %v", seed, loss), func(t *testing.T) {
				disk := crashfs.New()
				opts := testOptions(disk, &manual{})
				opts.SegmentBytes = 64 << 10
				l, want := mustOpen(t, opts), twin{}
				first := Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 3, 1, 50)}
				mustAppend(t, l, first)
				want.apply([]Write{first})
				mustSync(t, l)

				full := crashfs.When{Kind: crashfs.OpWrite, Name: "*.wal", Nth: 1}.Do(crashfs.Scattered(seed, syscall.ENOSPC))
				disk.SetHook(full)
				vote := Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 1}}
				err := l.Append([]Write{vote, {Group: 1, Entries: entries(3, 40, 2, 400)}})
				if !errors.Is(err, ErrDiskFull) {
					t.Fatalf("the disk is full, and the log says: %v", err)
				}
				disk.SetHook(nil)
				if seed%2 == 1 { // append the first refused record again: the rest must not follow it
					mustAppend(t, l, vote)
					want.apply([]Write{vote})
				}
				mustSync(t, l)
				disk.Crash(loss, nil)
				want.check(t, mustOpen(t, opts))
			})
		}
	}
}
