package wal

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// While the disk is busy, an append that fills a segment continues in the next one, and so do all others. The
// flush syncs both files, the older one first. An append that needs a third segment waits. No other append
// waits for that append.
func TestRollDoesNotWaitForTheDisk(t *testing.T) {
	disk, sched := newHungDisk(), &manual{}
	opts := testOptions(disk, sched)
	l, want := mustOpen(t, opts), twin{}
	do := func(w Write) {
		mustAppend(t, l, w)
		want.apply([]Write{w})
	}
	do(add(1, 3, 1))
	sched.runIdle()
	disk.hang()
	first, waited := mustTake(t, l), make(chan error)
	go func() { waited <- first.Wait() }()
	<-disk.begun
	do(Write{Group: 2, Entries: entries(1, 8, 1, 700)})
	if l.tail.seg.id != 2 || l.flusher.older == nil {
		t.Fatalf("the tail is segment %d", l.tail.seg.id)
	}
	second := mustTake(t, l)
	appended, before := make(chan error), l.batch.number
	go func() { appended <- l.Append([]Write{{Group: 3, Entries: entries(1, 4, 1, 1200)}}) }()
	for {
		l.mu.Lock()
		planned := l.batch.number
		l.mu.Unlock()
		if planned == before+1 { // the third append has found that it must wait, and released mu
			break
		}
		runtime.Gosched()
	}
	do(add(3, 4, 1))
	wantDurable(t, l, 1, 0)
	go func() { // lets all other syncs end
		for range disk.begun {
			disk.end <- struct{}{}
		}
	}()
	disk.end <- struct{}{}
	if err := errors.Join(<-waited, <-appended); err != nil {
		t.Fatal(err)
	}
	want.apply([]Write{{Group: 3, Entries: entries(1, 4, 1, 1200)}})
	if _, err := first.Complete(); err != nil {
		t.Fatal(err)
	}
	wantDurable(t, l, 1, 2)
	mustComplete(t, second)
	wantDurable(t, l, 2, 7)
	mustSync(t, l)
	disk.SetHook(nil)
	close(disk.begun)
	want.check(t, l)
	disk.Crash(crashfs.LoseAll, nil)
	want.check(t, mustOpen(t, opts))
}

// A crash may tear the older of two segments if nothing says that it was synced: the newer one has no
// watermark record, and there is no third segment with records.
func TestOlderSegmentMayBeTorn(t *testing.T) {
	one, two, three := forge(1).link(nil).entry(1).entry(2), forge(2), forge(3)
	two.link(one).entry(3)
	unproven := two.file()
	three.link(two).entry(4)
	spoiled, gone := one.file(), append(one.file()[:record.SegmentHeaderBytes:record.SegmentHeaderBytes], make([]byte, len(one.file())-record.SegmentHeaderBytes)...)
	spoiled[len(one.data)-1] ^= 1
	proven := forge(2).link(one).entry(3).add(record.Header{Kind: record.KindWatermark, Durable: record.SegmentHeaderBytes}, nil).file()
	for _, row := range []struct {
		what                 string
		first, second, third []byte
		last                 uint64
		err                  error
	}{
		{"whole", one.file(), unproven, nil, 3, nil},
		{"torn", spoiled, unproven, nil, 1, nil},
		{"not one record is left", gone, unproven, nil, 0, nil},
		{"torn although it was synced", spoiled, proven, nil, 0, ErrCorrupt},
		{"gone although it was synced", gone, proven, nil, 0, ErrCorrupt},
		{"three are whole", one.file(), unproven, three.file(), 4, nil},
		{"torn although a third one holds records", spoiled, unproven, three.file(), 0, ErrCorrupt},
	} {
		dir := forgedDir(one)
		for i := range maxTorn { // older saved ends: the two new ones must replace the oldest of them
			dir[fmt.Sprintf("%s.%d%s", record.SegmentName(1), i+1, tornSuffix)] = []byte{1}
		}
		dir[record.SegmentName(1)], dir[record.SegmentName(2)] = row.first, row.second
		if row.third != nil {
			dir[record.SegmentName(3)] = row.third
		}
		fs := diskOf(t, dir)
		in, err := Inspect(t.Context(), InspectOptions{FS: fs, Dir: testDir})
		if err != nil || (in.worst() == Damaged) != (row.err != nil) {
			t.Errorf("%s: an inspection finds %+v, %v", row.what, in.Findings, err)
		}
		l, err := Open(testOptions(fs, &manual{}))
		if !errors.Is(err, row.err) || err != nil && row.err == nil {
			t.Errorf("%s: %v", row.what, err)
			continue
		}
		if err != nil {
			continue
		}
		if last := l.Group(1).LastIndex(); last != row.last {
			t.Errorf("%s: the last index is %d, want %d", row.what, last, row.last)
		}
		mustAppend(t, l, Write{Group: 1, Entries: entries(row.last+1, row.last+2, 2, 8)})
		mustSync(t, l)
		fs.Crash(crashfs.LoseAll, nil)
		if last := mustOpen(t, testOptions(fs, &manual{})).Group(1).LastIndex(); last != row.last+1 {
			t.Errorf("%s: after an append and a power cut the last index is %d, want %d", row.what, last, row.last+1)
		}
	}
}
