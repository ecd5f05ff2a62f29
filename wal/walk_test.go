package wal

import (
	"path/filepath"
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
