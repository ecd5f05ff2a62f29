package wal

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// The records of a segment end where the link of the next segment says, whatever bytes follow them. A
// reader that walks over several segments must find the same end as recovery.
func TestReaderGoesOnBehindASpoiltEnd(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.SegmentBytes, opts.CacheBytes, opts.IndexBytes = 1024, -1, 1 // runs span segments
	l := mustOpen(t, opts)
	for i := uint64(1); i <= 40; i++ {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 100)})
		mustSync(t, l)
	}
	mustClose(t, l)
	in := mustInspect(t, fs)
	spoilt := 0
	for _, s := range in.Segments[:len(in.Segments)-1] {
		if s.End+record.HeaderBytes > s.Bytes {
			continue
		}
		f, err := fs.Open(filepath.Join(testDir, s.Name))
		if err == nil {
			_, err = f.WriteAt([]byte{0x80}, s.End+record.HeaderBytes-4)
		}
		if err != nil {
			t.Fatal(err)
		}
		spoilt++
	}
	if err := in.Close(); err != nil || spoilt == 0 {
		t.Fatal(spoilt, err)
	}
	l = mustOpen(t, opts)
	if runs := len(l.Group(1).index.runs); runs > spoilt {
		t.Fatalf("%d runs: none spans segments", runs)
	}
	if es, err := l.Group(1).Entries(1, 41, 1<<20); err != nil || len(es) != 40 {
		t.Errorf("read %d entries, %v", len(es), err)
	}
}

// The end of a group's log is replaced while a reader is between two reads of the disk. What it has found
// by then may be gone, so it begins again: it returns what the group has now, from its first index on.
func TestReplacedWhileItIsRead(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.SegmentBytes, opts.CacheBytes = 4096, 1
	l := mustOpen(t, opts)
	const last = 60
	for i := uint64(1); i <= last; i += 5 {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+5, 1, 300)})
		mustSync(t, l)
	}
	reads := 0
	fs.SetHook(func(op crashfs.Op) error {
		if op.Kind == crashfs.OpRead {
			if reads++; reads == 4 {
				mustAppend(t, l, Write{Group: 1, Entries: entries(3, last+1, 2, 10)})
			}
		}
		return nil
	})
	found, err := l.Group(1).Entries(1, last+1, 1<<20)
	fs.SetHook(nil)
	if err != nil || reads < 4 {
		t.Fatalf("after %d reads: %v", reads, err)
	}
	for i, e := range found {
		index, term := uint64(i)+1, uint64(2)
		if index < 3 {
			term = 1
		}
		if e.Index != index || e.Term != term {
			t.Fatalf("entry %d reads as (%d, %d), want term %d", index, e.Index, e.Term, term)
		}
	}
	if len(found) != last {
		t.Errorf("found %d entries, want %d", len(found), last)
	}
}

// The link of a segment is damaged after the log was opened. A reader that comes to it says that its header
// is damaged, not its body: what a header says is not believed before it was checked.
func TestReaderStopsAtADamagedLink(t *testing.T) {
	fs := crashfs.New()
	opts := testOptions(fs, &manual{})
	opts.SegmentBytes, opts.CacheBytes, opts.IndexBytes = 1024, -1, 1 // runs span segments
	l := mustOpen(t, opts)
	for i := uint64(1); i <= 40; i++ {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 100)})
		mustSync(t, l)
	}
	mustClose(t, l)
	l = mustOpen(t, opts)
	if runs := len(l.Group(1).index.runs); runs > 5 {
		t.Fatalf("%d runs: none spans segments", runs)
	}
	for id := uint64(2); id < l.tail.seg.id; id++ {
		f, err := fs.Open(filepath.Join(testDir, record.SegmentName(id)))
		if err == nil {
			_, err = f.WriteAt([]byte{0xEE}, record.SegmentHeaderBytes+record.HeaderBytes-4)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	es, err := l.Group(1).Entries(1, 41, 1<<20)
	if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), string(record.FlawCheck)) {
		t.Errorf("read %d entries, %v; want %q", len(es), err, record.FlawCheck)
	}
}
