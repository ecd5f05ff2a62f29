package wal

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
)

// A segment grows for a large record, and its file is then cut inside that record. The header knows only the
// length that the segment was made with.
func TestGrownSegmentCutShort(t *testing.T) {
	disk := crashfs.New()
	opts := testOptions(disk, &manual{})
	l := mustOpen(t, opts)
	mustAppend(t, l, add(1, 4, 1))
	mustAppend(t, l, Write{Group: 1, Entries: entries(4, 5, 1, 9000)})
	mustSync(t, l)
	f, err := disk.Open(l.tail.seg.path)
	if err == nil {
		err = errors.Join(f.Truncate(l.tail.seg.head.Size), f.Sync())
	}
	if err != nil || l.tail.seg.head.Size >= l.tail.seg.size {
		t.Fatal(err, l.tail.seg.head.Size, l.tail.seg.size)
	}
	for _, loss := range []crashfs.Loss{crashfs.LoseNothing, crashfs.LoseAll} {
		image := disk.Image(loss, nil)
		opts.FS = image
		in := mustInspect(t, image)
		if _, err := Open(opts); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "its end is missing") || in.worst() != Damaged {
			t.Fatalf("opened: %v; inspected: %+v", err, in.Findings)
		}
	}
}

// No crash leaves a grown segment with too short a file: the file has its new length before the record is
// written.
func TestGrownSegmentInACrash(t *testing.T) {
	disk := crashfs.New()
	opts := testOptions(disk, &manual{})
	l := mustOpen(t, opts)
	mustAppend(t, l, add(1, 4, 1))
	mustSync(t, l)
	looked := 0
	disk.SetHook(func(op crashfs.Op) error {
		for what, image := range disk.Images(64, 1) {
			looked++
			o := opts
			o.FS = image
			if _, err := Open(o); err != nil {
				t.Errorf("a power cut before %s that left %s: %v", op, what, err)
			}
		}
		return nil
	})
	mustAppend(t, l, Write{Group: 1, Entries: entries(4, 5, 1, 9000)})
	mustSync(t, l)
	if disk.SetHook(nil); looked < 20 {
		t.Errorf("looked at %d images", looked)
	}
}
