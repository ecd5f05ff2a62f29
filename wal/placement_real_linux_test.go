package wal_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// TestRealFullBtrfs fills a btrfs that holds a log. Votes must fit, before and after entries were refused,
// and the log must open, because its files are written in place there. Without that none of 200 votes
// fitted, and the log did not open.
func TestRealFullBtrfs(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: making and mounting filesystems takes a second")
	}
	image, mounted := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 128<<20)); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.btrfs", "-q", image)
	run(t, "mount", "-o", "loop", image, mounted)
	t.Cleanup(func() { unmount(t, mounted) })

	config := labConfig{segmentBytes: 1 << 20}
	dir, sched := filepath.Join(mounted, "log"), &labScheduler{}
	log, err := openLabLog(vfs.OS(), dir, sched, config, func(message string) {
		if message == wal.CopyOnWrite {
			t.Error("the log warns although its directory is new")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var last, term uint64
	add := func(n int) error {
		w := labWrite{group: 1, entries: []raftpb.Entry{{Index: last + 1, Term: 1, Data: bytes.Repeat([]byte{7}, n)}}}
		err := appendLab(log, []labWrite{w})
		if err == nil {
			last++
			err = log.Sync()
		}
		sched.step()
		return err
	}
	votes := func() (n int, err error) {
		for ; n < 200 && err == nil; n++ {
			term++
			if err = appendLab(log, []labWrite{{group: 1, hs: raftpb.HardState{Term: term, Vote: 1}}}); err == nil {
				err = log.Sync()
			}
		}
		return n, err
	}
	for range 300 {
		if err := add(1000); err != nil {
			t.Fatal(err)
		}
	}
	for range 20 {
		sched.step()
	}
	fill(t, filepath.Join(mounted, "filler"))
	syscall.Sync()
	if n, err := votes(); err != nil {
		t.Fatalf("on the full disk, vote %d: %v", n, err)
	}
	for err == nil && last < 100_000 {
		err = add(50_000)
	}
	if !isLabFull(err) {
		t.Fatalf("the disk is full after %d entries, and the log says: %v", last, err)
	}
	if n, err := votes(); err != nil {
		t.Fatalf("after entries were refused, vote %d: %v", n, err)
	}
	if err := log.Close(); err != nil {
		t.Errorf("close on the full disk: %v", err)
	}
	sched = &labScheduler{}
	if log, err = openLabLog(vfs.OS(), dir, sched, config, nil); err != nil {
		t.Fatalf("the log does not open on the full disk: %v", err)
	}
	if g := log.Group(1); g.LastIndex() != last || g.HardState().Term != term {
		t.Errorf("the log has entries to %d of %d, and term %d of %d", g.LastIndex(), last, g.HardState().Term, term)
	}
	if _, err := votes(); err != nil {
		t.Errorf("a vote after that: %v", err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}
