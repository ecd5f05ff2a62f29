package wal

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// fillSegments appends until a recycled segment is the tail: what it held before is behind its records.
func fillSegments(t *testing.T, l *Log, sched *manual, want twin) (last uint64) {
	for last = 1; l.tail.seg.id < 6 || l.tail.seg.end > l.tail.seg.size/2; last++ {
		w := Write{Group: 1, Entries: entries(last, last+1, 1, 700), CompactThrough: last - min(last, 4)}
		if last == 1 {
			w.HardState = raftpb.HardState{Term: 1}
		}
		mustAppend(t, l, w)
		want.apply([]Write{w})
		mustSync(t, l)
		sched.runIdle()
		if last > 10_000 {
			t.Fatal("no segment is recycled")
		}
	}
	return last
}

// writesSegment reports whether op writes a segment. A recycled one is known by the name of the spare.
func writesSegment(op crashfs.Op) bool {
	return op.Kind == crashfs.OpWrite && (strings.HasSuffix(op.Name, ".wal") || strings.HasSuffix(op.Name, ".spare"))
}

// A full disk that refuses each write, where nothing is overwritten in place, refuses the zeros over a
// refused append, too. The log must go on when there is space. Seen in TestRests, seed 11: the log stopped.
//
// The refused write may have put some sectors on the disk, or none. The wipe may get some way, and be refused
// then: that part must be made durable with the rest.
func TestRefusedWipeIsTriedAgain(t *testing.T) {
	left := 0
	for seed := range uint64(240) {
		touched, attempts, some, reopens := seed%2 == 1, 1+int(seed/2%3), int(seed/6%3), seed/18%3
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			disk, sched := crashfs.New(), &manual{}
			opts := testOptions(disk, sched)
			opts.SegmentBytes = 64 << 10
			l, want := mustOpen(t, opts), twin{}
			last := fillSegments(t, l, sched, want)

			writes, succeed := 0, -1 // the wipe's writes that succeed before one is refused
			full := func(op crashfs.Op) error {
				if !writesSegment(op) {
					return nil
				}
				if writes++; writes == 1 && touched {
					return crashfs.Scattered(seed, syscall.ENOSPC)
				}
				if succeed--; succeed >= 0 && writes > 1 {
					return nil
				}
				return syscall.ENOSPC
			}
			disk.SetHook(full)
			refused := Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 1}, Entries: entries(last, last+16, 2, 900)}
			for i := range attempts {
				if i > 0 {
					succeed = some
				}
				err := l.Append([]Write{refused})
				var e *DiskFullError
				if !errors.As(err, &e) {
					t.Fatalf("attempt %d: the disk is full, and the log says: %v", i, err)
				}
				if e.Left {
					left++
				}
				if i == 0 && e.Left != (len(l.tail.residues) > 0) {
					t.Errorf("left is %v of %d residues", e.Left, len(l.tail.residues))
				}
				l.writeIdleWatermark()
				want.check(t, l)
			}
			disk.SetHook(nil)
			vote := Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 1}}
			switch reopens {
			case 0: // a vote is in the place of the refused append
				mustAppend(t, l, vote)
				want.apply([]Write{vote})
				disk.Crash(crashfs.LoseNothing, nil)
			case 1: // and it is durable, with the zeros behind it
				mustAppend(t, l, vote)
				want.apply([]Write{vote})
				mustSync(t, l)
				disk.Crash(crashfs.LoseAll, nil)
			case 2:
				mustAppend(t, l, refused)
				want.apply([]Write{refused})
				mustClose(t, l)
			}
			want.check(t, mustOpen(t, opts))
		})
	}
	if left == 0 {
		t.Error("no wipe was refused")
	}
}

// A power cut or a kill while a wipe is due leaves the refused append or nothing of it, and the log opens.
func TestPowerCutBeforeTheWipe(t *testing.T) {
	came := 0
	for seed := range uint64(60) {
		disk, sched := crashfs.New(), &manual{}
		opts := testOptions(disk, sched)
		opts.SegmentBytes = 64 << 10
		l, want := mustOpen(t, opts), twin{}
		last := fillSegments(t, l, sched, want)
		writes := 0
		disk.SetHook(func(op crashfs.Op) error {
			if !writesSegment(op) {
				return nil
			}
			if writes++; writes == 1 {
				return crashfs.Scattered(seed, syscall.ENOSPC)
			}
			return syscall.ENOSPC
		})
		refused := Write{Group: 1, Entries: entries(last, last+1+seed%3, 1, 200)}
		if err := l.Append([]Write{refused}); !errors.Is(err, ErrDiskFull) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		mustSync(t, l) // what is durable stays so
		disk.SetHook(nil)
		disk.Crash([]crashfs.Loss{crashfs.LoseAll, crashfs.LoseNothing}[seed%2], nil)
		l = mustOpen(t, opts)
		if l.Group(1).LastIndex() >= last {
			came++
			want.apply([]Write{refused})
		}
		want.check(t, l)
	}
	t.Logf("%d of 60 refused appends were back", came)
}
