package wal

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A salvage that crashed leaves a copy that would have replaced a segment. Discard must remove the copy too.
// Otherwise the next Open reports that the segment is missing.
func TestDiscardTakesTheDraftOfASalvage(t *testing.T) {
	one := forge(1).link(nil).entry(1)
	dir := forgedDir(one)
	dir[draftName] = one.file()
	fs := diskOf(t, dir)
	if err := Discard(fs, testDir); err != nil {
		t.Fatal(err)
	}
	opts := testOptions(fs, &manual{})
	opts.Owner = 9
	if l := mustOpen(t, opts); l.Group(1).LastIndex() > 0 {
		t.Errorf("what was discarded is back: %d", l.Group(1).LastIndex())
	}
}

// The power fails after each operation of Discard, and leaves any image of the disk. Discard can be repeated,
// and then another host has an empty log, of a higher generation. When it has returned it need not be.
func TestDiscardIsRepeatedAfterACut(t *testing.T) {
	disk, sched := crashfs.New(), &manual{}
	opts := testOptions(disk, sched)
	l, want := mustOpen(t, opts), twin{}
	for i := uint64(1); i < 20; i++ {
		want.append(t, l, Write{Group: 1, HardState: raftpb.HardState{Term: i}, Entries: entries(i, i+1, i, 700)})
		sched.runIdle()
	}
	generation := l.Fence().Generation
	mustClose(t, l)
	images, cuts := 0, 0
	look := func(done bool) {
		cuts++
		for code, image := range disk.Images(40, uint64(cuts)) {
			images++
			if !done {
				if err := Discard(image, testDir); err != nil {
					t.Fatalf("cut %d, %v: %v", cuts, code, err)
				}
			}
			opts := testOptions(image, &manual{})
			opts.Owner = 9
			l, err := Open(opts)
			if err != nil {
				t.Fatalf("cut %d, %v: %v", cuts, code, err)
			}
			if n := len(l.Groups()); n > 0 || l.Fence().Generation <= generation {
				t.Fatalf("cut %d, %v: %d groups are back, the generation is %d after %d", cuts, code, n, l.Fence().Generation, generation)
			}
			mustClose(t, l)
		}
	}
	disk.SetHook(func(op crashfs.Op) error {
		switch op.Kind {
		case crashfs.OpWrite, crashfs.OpSync, crashfs.OpRemove, crashfs.OpSyncDir, crashfs.OpRename, crashfs.OpCreate:
			look(false)
		}
		return nil
	})
	if err := Discard(disk, testDir); err != nil {
		t.Fatal(err)
	}
	disk.SetHook(nil)
	look(true)
	if cuts < 10 || images <= cuts {
		t.Errorf("%d images of %d cuts", images, cuts)
	}
}
