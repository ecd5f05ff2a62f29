package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal/record"
)

// sparesOf returns the paths of the spares in the directory.
func sparesOf(t *testing.T, disk vfs.FS) (paths []string) {
	t.Helper()
	names, err := disk.ReadDir(testDir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if isSpareName(name) {
			paths = append(paths, filepath.Join(testDir, name))
		}
	}
	return paths
}

// An operator who needs space takes the spares of a running log, all or some, whole or in part. The log makes
// other segments. If the disk is full it says so, goes on when there is space, and opens again.
func TestTakenSparesStopNothing(t *testing.T) {
	remove := func(disk vfs.FS, path string) error { return disk.Remove(path) }
	for _, c := range []struct {
		name string
		take func(disk vfs.FS, path string) error
		keep int // the first of the spares
		full bool
	}{
		{name: "removed", take: remove},
		{name: "removed, but one", take: remove, keep: 1},
		{name: "removed, but three", take: remove, keep: 3},
		{name: "removed, and used for something else", take: remove, full: true},
		{name: "cut", take: func(disk vfs.FS, path string) error {
			f, err := disk.Open(path)
			if err != nil {
				return err
			}
			return errors.Join(f.Truncate(100), f.Close())
		}},
		{name: "refused", take: func(disk vfs.FS, path string) error {
			disk.(*crashfs.FS).SetHook(crashfs.When{Kind: crashfs.OpOpen, Name: "*" + spareSuffix}.Do(errDisk))
			return nil
		}},
	} {
		for _, busy := range []bool{false, true} { // then the append makes the segment that it needs
			t.Run(fmt.Sprint(c.name, ", the helper is busy: ", busy), func(t *testing.T) {
				disk, sched := crashfs.New(), &manual{}
				opts := testOptions(disk, sched)
				opts.SegmentBytes = 10 * vfs.BlockBytes
				l, m := mustOpen(t, opts), twin{}
				m.append(t, l, Write{Group: 1, Entries: entries(1, 120, 1, 3000)}, Write{Group: 1, CompactThrough: 110})
				sched.runIdle()
				spares := sparesOf(t, disk)
				if len(spares) != maxSpares {
					t.Fatalf("the spares are %v", spares)
				}
				for _, path := range spares[c.keep:] {
					if err := c.take(disk, path); err != nil {
						t.Fatal(err)
					}
				}
				if c.full {
					disk.SetCapacity(disk.UsedBytes())
				}
				for last := m[1].last(); m[1].last() < last+60; {
					w := Write{Group: 1, Entries: entries(m[1].last()+1, m[1].last()+2, 1, 3000)}
					err := l.Append([]Write{w})
					if c.full && errors.Is(err, ErrDiskFull) {
						disk.SetCapacity(0)
						err = l.Append([]Write{w})
					}
					if err != nil {
						t.Fatal(err)
					}
					mustSync(t, l)
					m.apply([]Write{w})
					if !busy {
						sched.runIdle()
					}
				}
				for id, s := range l.table.segments {
					f, err := disk.Open(filepath.Join(testDir, record.SegmentName(id)))
					if err != nil {
						t.Fatal(err)
					}
					if size, err := f.Size(); size < s.size || err != nil {
						t.Errorf("segment %d has %d bytes, want %d; %v", id, size, s.size, err)
					}
				}
				disk.SetHook(nil)
				disk.Crash(crashfs.LoseAll, nil)
				opts.Scheduler, opts.Rand = &manual{}, seeded(2)
				l = mustOpen(t, opts)
				if got := l.Group(1).LastIndex(); got != m[1].last() {
					t.Errorf("the log ends with %d, want %d", got, m[1].last())
				}
				mustClose(t, l)
			})
		}
	}
}
