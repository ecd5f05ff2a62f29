package wal

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

var errNoSpace = syscall.ENOSPC

// On a full disk an append is refused as a whole, wherever in it the space ends, and is accepted when there
// is space. A crash in between leaves nothing of it. Votes, truncations and compactions are accepted all
// the time.
func TestDiskFullIsRecoverable(t *testing.T) {
	for _, kind := range []crashfs.OpKind{crashfs.OpCreate, crashfs.OpPreallocate, crashfs.OpWrite} {
		for _, size := range []int{600, 3000, 9000, 30_000} {
			for _, crash := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d bytes/crash %v", kind, size, crash), func(t *testing.T) { fillDisk(t, kind, size, crash) })
			}
		}
	}
}

func fillDisk(t *testing.T, kind crashfs.OpKind, size int, crash bool) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	l, want := mustOpen(t, opts), twin{}
	want.append(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 3, 1, 100)})
	sched.runIdle()
	noSpace := func(op crashfs.Op) error {
		if op.Kind == kind {
			return errNoSpace
		}
		return nil
	}
	fs.SetHook(noSpace)
	var err error
	for range 40 {
		next := want[2].last() + 1
		big := []Write{{Group: 1, HardState: raftpb.HardState{Term: 2}}, {Group: 2, Entries: entries(next, next+3, 1, size/3)}, {Group: 1, Entries: entries(3, 4, 2, 10)}}
		if err = l.Append(big); err != nil {
			break
		}
		want.apply(big)
		mustSync(t, l)
		sched.runIdle()
	}
	var full *DiskFullError
	if !errors.As(err, &full) || !errors.Is(err, ErrDiskFull) || !errors.Is(err, errNoSpace) || errors.Is(err, ErrDiskFailed) || full.Bytes == 0 {
		t.Fatal(err)
	}
	want.check(t, l)
	if kind != crashfs.OpWrite { // on a disk that refuses writes even to allocated space, votes fail too
		for i := range uint64(40) { // more than the tail has space for
			want.append(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 3 + i, Vote: 2}})
			sched.runIdle()
		}
		want.append(t, l, Write{Group: 1, TruncateFrom: 3}, Write{Group: 2, CompactThrough: want[2].last()})
		if err := l.Append([]Write{{Group: 1, Entries: entries(3, 4, 2, 100)}}); err != nil && !errors.Is(err, ErrDiskFull) {
			t.Fatal(err)
		} else if err == nil {
			want.apply([]Write{{Group: 1, Entries: entries(3, 4, 2, 100)}})
		}
	}
	want.check(t, l)
	if crash {
		mustSync(t, l)
		fs.SetHook(nil)
		fs.Crash(crashfs.LoseNothing, nil)
		sched.tasks = nil // they belong to the dead process
		l = mustOpen(t, opts)
		want.check(t, l)
		fs.SetHook(noSpace)
	}
	fs.SetHook(nil)
	for i := range uint64(20) {
		want.append(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 500 + i}}, Write{Group: 2, Entries: entries(want[2].last()+1, want[2].last()+3, 9, size/2)})
		sched.runIdle()
	}
	want.check(t, l)
	fs.Crash(crashfs.LoseAll, nil)
	want.check(t, mustOpen(t, opts))
}

// partial is a disk that, while *full is true, writes only the first 1000 bytes of a write and then has no
// more space.
type partial struct {
	vfs.FS
	full *bool
}

type partialFile struct {
	vfs.File
	full *bool
}

func (p partial) Create(name string) (vfs.File, error) {
	f, err := p.FS.Create(name)
	return partialFile{f, p.full}, err
}

func (p partial) OpenDirect(string) (vfs.BlockWriter, error) { return nil, errors.ErrUnsupported }

func (f partialFile) WriteAt(b []byte, off int64) (int, error) {
	if !*f.full || len(b) <= 1000 {
		return f.File.WriteAt(b, off)
	}
	n, _ := f.File.WriteAt(b[:1000], off)
	return n, errNoSpace
}

// The disk writes the first part of an append, and the append fails. Then no part of it may come back.
func TestPartOfAnAppendIsTakenBack(t *testing.T) {
	disk, isFull := crashfs.New(), false
	opts := testOptions(partial{disk, &isFull}, &manual{})
	l, want := mustOpen(t, opts), twin{}
	w := []Write{{Group: 1, Entries: entries(1, 3, 1, 50)}}
	mustAppend(t, l, w...)
	want.apply(w)
	isFull = true
	if err := l.Append([]Write{{Group: 1, Entries: entries(3, 20, 1, 100)}}); !errors.Is(err, ErrDiskFull) {
		t.Fatal(err)
	}
	mustSync(t, l)
	image := disk.Image(crashfs.LoseNothing, nil)
	want.check(t, mustOpen(t, testOptions(image, &manual{})))
	isFull = false
	w = []Write{{Group: 1, Entries: entries(3, 5, 1, 100)}}
	mustAppend(t, l, w...)
	want.apply(w)
	mustSync(t, l)
	disk.Crash(crashfs.LoseAll, nil)
	want.check(t, mustOpen(t, opts))
}

// No part of a refused append comes back after a power cut, whatever the cut leaves of what was written. The
// zeros that overwrite the part must be durable before the append returns, because no later sync would know
// that they are not. (Found by the crash laboratory, replay 56/27/1.)
func TestPartOfAnAppendStaysAway(t *testing.T) {
	disk, isFull := crashfs.New(), false
	l, want := mustOpen(t, testOptions(partial{disk, &isFull}, &manual{})), twin{}
	w := []Write{{Group: 1, Entries: entries(1, 3, 1, 50)}}
	mustAppend(t, l, w...)
	want.apply(w)
	mustSync(t, l)
	isFull = true
	if err := l.Append([]Write{{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 1}}, {Group: 1, Entries: entries(3, 20, 1, 100)}}); !errors.Is(err, ErrDiskFull) {
		t.Fatal(err)
	}
	mustSync(t, l)
	isFull = false
	mustAppend(t, l, Write{Group: 2, Entries: entries(1, 2, 1, 10)}) // in the same place, and not synced
	for what, image := range disk.Images(256, 1) {
		again := mustOpen(t, testOptions(image, &manual{}))
		if hs := again.Group(1).HardState(); hs.Term > 1 {
			t.Fatalf("after a crash that left %s the log shows a refused vote of term %d", what, hs.Term)
		}
	}
}

// The caller repeats the first record of a refused append, and a power cut keeps that record but not the
// zeros after it. Then the rest of the refused append would follow that record, with the same bytes as
// before. It must not come back.
func TestRestOfARefusedAppendStaysAway(t *testing.T) {
	disk, isFull := crashfs.New(), false
	l := mustOpen(t, testOptions(partial{disk, &isFull}, &manual{}))
	mustAppend(t, l, Write{Group: 2, Entries: entries(1, 9, 1, 10)})
	mustSync(t, l)
	isFull = true
	vote := Write{Group: 1, HardState: raftpb.HardState{Term: 2, Vote: 1}}
	first := Write{Group: 3, Entries: entries(1, 2, 1, 400)}
	if err := l.Append([]Write{first, {Group: 2, TruncateFrom: 3}, vote, {Group: 3, Entries: entries(2, 9, 1, 100)}}); !errors.Is(err, ErrDiskFull) {
		t.Fatal(err)
	}
	isFull = false
	mustAppend(t, l, first) // not synced
	for what, image := range disk.Images(256, 1) {
		again := mustOpen(t, testOptions(image, &manual{}))
		if hs, last := again.Group(1).HardState(), again.Group(2).LastIndex(); hs.Term > 0 || last != 8 {
			t.Fatalf("after a crash that left %s parts of a refused append are back: term %d, want 0; last index %d, want 8", what, hs.Term, last)
		}
	}
}

// If the log cannot even write the zeros that undo an append, the contents of the disk are unknown. This
// error is final.
func TestAppendThatCannotBeTakenBack(t *testing.T) {
	for _, kind := range []crashfs.OpKind{crashfs.OpWrite, crashfs.OpSync} {
		disk, isFull := crashfs.New(), false
		l := mustOpen(t, testOptions(partial{disk, &isFull}, &manual{}))
		mustAppend(t, l, Write{Group: 1, Entries: entries(1, 3, 1, 50)})
		mustSync(t, l)
		isFull = true
		disk.SetHook(crashfs.FailNth(kind, map[crashfs.OpKind]int{crashfs.OpWrite: 2, crashfs.OpSync: 1}[kind], errDisk))
		if err := l.Append([]Write{{Group: 1, Entries: entries(3, 20, 1, 100)}}); !errors.Is(err, ErrDiskFailed) || errors.Is(err, ErrDiskFull) {
			t.Errorf("%s fails: %v, want %v", kind, err, ErrDiskFailed)
		}
		disk.SetHook(nil)
		isFull = false
		if err := l.Append([]Write{{Group: 1, Entries: entries(3, 4, 1, 10)}}); !errors.Is(err, ErrDiskFailed) {
			t.Errorf("after %s failed: %v, want %v", kind, err, ErrDiskFailed)
		}
	}
}

// A process starts again on a full disk, after votes have begun to use the reserve. It must not use the
// rest of the reserve for entries.
func TestReserveIsForVotesAlsoAfterARestart(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.FS = fs.Mount()
	l := mustOpen(t, opts)
	sched.runIdle()
	fs.SetCapacity(fs.UsedBytes())
	vote := func(term uint64) error {
		err := l.Append([]Write{{Group: 1, HardState: raftpb.HardState{Term: term, Vote: 1}}})
		sched.runIdle()
		return err
	}
	fill := func() {
		t.Helper()
		for {
			last := l.Group(1).LastIndex()
			err := l.Append([]Write{{Group: 1, Entries: entries(last+1, last+2, 1, 8)}})
			if errors.Is(err, ErrDiskFull) {
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			sched.runIdle()
		}
	}
	fill()
	if l.supply.starved.Load() {
		t.Fatal("entries have used the reserve, which is for votes")
	}
	term := uint64(1)
	for ; !l.supply.starved.Load(); term++ { // until votes use the reserve
		if err := vote(term); err != nil {
			t.Fatal(err)
		}
	}
	mustSync(t, l)
	fs.Crash(crashfs.LoseNothing, nil)
	sched = &manual{}
	opts.FS, opts.Scheduler = fs.Mount(), sched
	l = mustOpen(t, opts)
	sched.runIdle()
	fill()
	if err := vote(term); err != nil {
		t.Errorf("a vote after a restart, with all other space full of entries: %v", err)
	}
}

// A log that is opened again without a reserve takes entries as long as its tail has space, if there is space
// for the reserve: the helper does not use that for the segment after the tail.
func TestReserveComesBeforeTheNextSegment(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.FS = fs.Mount()
	l, want := mustOpen(t, opts), twin{}
	for l.supply.segment(0) == nil {
		sched.step()
	}
	fs.SetCapacity(fs.UsedBytes())
	want.append(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 3, 1, 8)})
	sched.runIdle()
	if l.supply.segment(0) == nil || l.supply.hasSpare() {
		t.Fatal("want a disk with space for the tail and one more segment")
	}
	mustSync(t, l)
	fs.Crash(crashfs.LoseNothing, nil)
	sched = &manual{}
	opts.FS, opts.Scheduler = fs.Mount(), sched
	l = mustOpen(t, opts)
	sched.runIdle()
	want.append(t, l, Write{Group: 1, Entries: entries(3, 5, 1, 8)})
	want.check(t, l)
}

// A disk may have no space even for preallocated blocks, for example one that copies on write. Then it also
// refuses what the log writes by itself: the records of the cleaner and the watermark record of Close. The
// log must not stop for good because of that, and Close must not fail.
func TestFullDiskRefusesTheCleanerToo(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.FS = fs.Mount()
	l, want := mustOpen(t, opts), twin{}
	do := func(w ...Write) {
		t.Helper()
		mustAppend(t, l, w...)
		want.apply(w)
	}
	do(Write{Group: 1, HardState: raftpb.HardState{Term: 1}, Entries: entries(1, 3, 1, 900)})
	do(Write{Group: 2, Entries: entries(1, 40, 1, 900)}, Write{Group: 2, CompactThrough: 38})
	mustSync(t, l)
	full := func(op crashfs.Op) error {
		if op.Kind == crashfs.OpWrite && strings.HasSuffix(op.Name, record.SegmentSuffix) {
			return errNoSpace
		}
		return nil
	}
	for left := 0; l.Stats().Dropped == 0; left++ { // one more step each time
		fs.SetHook(nil)
		do(Write{Group: 2, Entries: entries(40+uint64(left), 41+uint64(left), 1, 900)}, Write{Group: 2, CompactThrough: 39 + uint64(left)})
		mustSync(t, l)
		for range left {
			sched.step()
		}
		fs.SetHook(full)
		sched.runIdle()
		if err := l.failure(); err != nil {
			t.Fatalf("with no space after %d steps: %v", left, err)
		}
		want.check(t, l)
		if why := checkNeeds(l); why != "" {
			t.Fatal(why)
		}
	}
	if err := l.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	fs.SetHook(nil)
	want.check(t, mustOpen(t, opts))
}

// A disk without space for the next segment is reported once for each tail, and not with each piece of it
// that is filled meanwhile.
func TestNoSpaceAheadIsReportedOnce(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	opts.SegmentBytes = 16 * zeroPieceBytes
	saw, tries := &warnings{}, 0
	opts.Logger = slog.New(saw)
	l := mustOpen(t, opts)
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpCreate {
			tries++
			return errNoSpace
		}
		return nil
	})
	for i := uint64(1); i <= 6; i++ {
		if err := l.Append([]Write{{Group: 1, Entries: entries(i, i+1, 1, zeroPieceBytes)}}); err != nil {
			t.Fatal(err)
		}
		mustSync(t, l)
		l.wakeHelper()
		sched.runIdle()
	}
	fs.SetHook(nil)
	reported := 0
	for _, message := range saw.messages {
		if message == "wal: could not prepare a segment ahead" {
			reported++
		}
	}
	if tries < 3 || reported != 1 {
		t.Errorf("%d tries and %d warnings, want several and one", tries, reported)
	}
	mustClose(t, l)
}

// A disk without space to note in FENCE that the log reaches into a new segment is reported once for each.
func TestNoSpaceForTheFenceIsReportedOnce(t *testing.T) {
	fs, sched := crashfs.New(), &manual{}
	opts := testOptions(fs, sched)
	saw := &warnings{}
	opts.Logger = slog.New(saw)
	l := mustOpen(t, opts)
	sched.runIdle()
	fs.SetHook(func(op crashfs.Op) error {
		if strings.HasSuffix(op.Name, fenceName) && (op.Kind == crashfs.OpWrite || op.Kind == crashfs.OpPreallocate) {
			return errNoSpace
		}
		return nil
	})
	for i, from := uint64(1), l.tail.seg.id; l.tail.seg.id < from+3; i++ {
		mustAppend(t, l, add(i, i+1, 1))
		mustSync(t, l)
		l.wakeHelper()
		sched.runIdle()
	}
	reported := 0
	for _, message := range saw.messages {
		if message == "wal: no space to note in FENCE that the log reaches into a new segment" {
			reported++
		}
	}
	if reported != 3 {
		t.Errorf("%d warnings about three new segments", reported)
	}
	fs.SetHook(nil)
	mustClose(t, l)
}
