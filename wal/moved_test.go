package wal

import (
	"errors"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// The directory of a log is moved away while the log is open, and a copy is in its place. A log that made its
// next segment in the copy would lose what it acknowledges there. It stops when it needs one, and says why.
// What was synced before is there when the directory is back.
func TestDirectoryIsMovedAway(t *testing.T) {
	d := crashfs.New()
	var n crashfs.Namespace
	opts := testOptions(d.MountIn(&n), &manual{})
	l := mustOpen(t, opts)
	if err := d.MkdirAll("/copy"); err != nil {
		t.Fatal(err)
	}
	n.Cover(opts.Dir, "/copy")
	synced := uint64(0)
	var err error
	for err == nil && synced < 1000 {
		if err = l.Append([]Write{{Group: 1, Entries: entries(synced+1, synced+2, 1, 4000)}}); err == nil {
			err = l.Sync()
		}
		if err == nil {
			synced++
		}
	}
	if !errors.Is(err, vfs.ErrMoved) {
		t.Errorf("after %d entries the log says %v, want ErrMoved", synced, err)
	}
	if names, err := d.ReadDir("/copy"); err != nil || len(names) > 0 {
		t.Errorf("the copy has %d files, %v", len(names), err)
	}
	_ = l.Close() // it has failed
	n.Uncover()
	l = mustOpen(t, opts)
	defer mustClose(t, l)
	if have := l.Group(1).LastIndex(); have < synced {
		t.Errorf("the log has %d entries, and %d were synced", have, synced)
	}
}

// A cold segment is opened again to be read. While the directory is moved away, its name leads elsewhere, and
// the read fails with the reason. (An empty directory in the place made it say that the file does not exist.)
func TestColdSegmentOfAMovedDirectory(t *testing.T) {
	d := crashfs.New()
	var n crashfs.Namespace
	s := &manual{}
	opts := testOptions(d.MountIn(&n), s)
	opts.CacheBytes = -1
	l := mustOpen(t, opts)
	defer mustClose(t, l)
	last := uint64(0)
	for range 3 * maxColdFiles {
		mustAppend(t, l, Write{Group: 1, Entries: entries(last+1, last+3, 1, 1500)})
		mustSync(t, l)
		last += 2
		s.runIdle()
	}
	if err := d.MkdirAll("/empty"); err != nil {
		t.Fatal(err)
	}
	n.Cover(opts.Dir, "/empty")
	if _, err := l.Group(1).Entries(1, 2, 1<<20); !errors.Is(err, vfs.ErrMoved) {
		t.Errorf("the read of a cold segment says %v, want ErrMoved", err)
	}
	n.Uncover()
	if es, err := l.Group(1).Entries(1, 2, 1<<20); err != nil || len(es) != 1 {
		t.Errorf("the directory is back, and the read returns %d entries, %v", len(es), err)
	}
}
