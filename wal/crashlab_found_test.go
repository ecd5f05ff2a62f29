package wal_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// The bugs that the laboratory found in the log, each as a small test.

// TestTornFirstBatchIsCutWithAWarning spoils the first record of a segment whose first batch is also its
// last. This looks like a torn write, so recovery cuts the batch. But the log must warn the operator, as
// for any other torn tail. Found by TestFlipEveryBit: such a segment was removed without the warning.
func TestTornFirstBatchIsCutWithAWarning(t *testing.T) {
	disk := crashfs.New()
	log, err := openLabLog(disk, labDir, &labScheduler{}, labConfig{segmentBytes: labMinSegment}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); log.Stats().Segments < 2; i++ {
		w := labWrite{group: 1, entries: []raftpb.Entry{{Index: i, Term: 1, Data: make([]byte, 100)}}}
		if err := appendLab(log, []labWrite{w}); err != nil {
			t.Fatal(err)
		}
		if err := log.Sync(); err != nil {
			t.Fatal(err)
		}
	}
	last := log.Group(1).LastIndex()
	disk.Crash(crashfs.LoseAll, nil)
	if err := disk.FlipBit(labDir+"/0000000000000002.wal", labHeadBytes, 0); err != nil {
		t.Fatal(err)
	}
	warned := false
	log, err = openLabLog(disk, labDir, &labScheduler{}, labConfig{segmentBytes: labMinSegment}, func(message string) {
		warned = warned || isLabTornTail(message)
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := log.Group(1).LastIndex(); n != last-1 || !warned {
		t.Errorf("the log ends at %d, want %d; warned %v", n, last-1, warned)
	}
}

// TestRecoveryNeedsNoSpace makes one append on a full disk: a commit index, which still fits into the tail,
// and the entry of that index, which does not. The append must fail and leave nothing. Seen: the commit
// index remained, and recovery had no space to write a lower one. Later FENCE had no space. If the log does
// not open, the host cannot vote.
func TestRecoveryNeedsNoSpace(t *testing.T) {
	config := labConfig{segmentBytes: labMinSegment}
	for size := range 200 { // the size of the last entry before: at some sizes only the hard state fits
		disk := crashfs.New()
		log, err := openLabLog(disk, labDir, &labScheduler{}, config, nil)
		if err != nil {
			t.Fatal(err)
		}
		disk.SetCapacity(disk.UsedBytes())
		for i, data := range []int{300, 200, size} {
			w := labWrite{group: 1, entries: []raftpb.Entry{{Index: uint64(i) + 1, Term: 1, Data: make([]byte, data)}}}
			if err := appendLab(log, []labWrite{w}); err != nil {
				t.Fatal(err)
			}
		}
		w := labWrite{group: 1, hs: raftpb.HardState{Term: 1, Commit: 4}, entries: []raftpb.Entry{{Index: 4, Term: 1, Data: make([]byte, 300)}}}
		if err := appendLab(log, []labWrite{w}); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("the disk is full, and the log says: %v", err)
		}
		disk.Crash(crashfs.LoseNothing, nil)
		if _, err := openLabLog(disk, labDir, &labScheduler{}, config, nil); err != nil {
			t.Fatalf("after an entry of %d bytes: %v", size, err)
		}
	}
}

// TestSeedsThatFailed runs workloads in which the laboratory has found something.
//
// Seed 1795845370127006556: the direct write of a vote fails, and so does the sync of the zeros that take it
// back. The kernel shows the zeros, and does not write them, since they count as clean. The next life has
// shown no vote. After a power cut there was one.
func TestSeedsThatFailed(t *testing.T) {
	for _, seed := range []uint64{1795845370127006556} {
		if failure := newCrashLab(seed).run(); failure != "" {
			t.Error(failure)
		}
	}
}

// TestARecycledSegmentEndsInZeros makes segments of files that are full of old records, and in which the
// helper has written no zeros. After each append the log must end in the zeros of rule R10. Old bytes there
// look like a torn write. With that bug planted the laboratory needs half a minute to find it.
func TestARecycledSegmentEndsInZeros(t *testing.T) {
	disk, helper, config := crashfs.New(), &labScheduler{}, labConfig{segmentBytes: labMinSegment}
	log, err := openLabLog(disk, labDir, helper, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	last := uint64(0)
	grow := func() {
		last++
		w := labWrite{group: 1, entries: []raftpb.Entry{{Index: last, Term: 1, Data: make([]byte, 40+last%50)}}}
		if err := appendLab(log, []labWrite{w}); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 { // some segments
		grow()
	}
	if err := appendLab(log, []labWrite{{group: 1, compact: last}}); err != nil {
		t.Fatal(err)
	}
	for range 50 { // which become spares
		helper.step()
	}
	for range 50 { // and segments again, without the helper
		grow()
		again, err := openLabLog(disk.Image(crashfs.LoseNothing, nil), labDir, &labScheduler{}, config, func(message string) { t.Error(message) })
		if err != nil {
			t.Fatal(err)
		}
		if n := again.Group(1).LastIndex(); n != last || t.Failed() {
			t.Fatalf("the log ends at %d, want %d", n, last)
		}
	}
	if s := log.Stats(); s.Recycled < 2 {
		t.Errorf("%d segments were recycled", s.Recycled)
	}
}
