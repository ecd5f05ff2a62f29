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

// TestRealThinDisk appends on a real thin volume that gets full: ext4 in a sparse file on a tmpfs. The direct
// write of the append fails there with -1, although its first extent is on the disk. After the death of the
// process, nothing of the refused append may be there. Votes must still fit, because their block has space.
func TestRealThinDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: making and mounting filesystems takes a second")
	}
	pool, mounted := t.TempDir(), t.TempDir()
	run(t, "mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", pool)
	t.Cleanup(func() { unmount(t, pool) })
	image := filepath.Join(pool, "disk")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20)); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", "-F", "-O", "^has_journal", image)
	run(t, "mount", "-o", "loop", image, mounted)
	t.Cleanup(func() { unmount(t, mounted) })

	config := labConfig{segmentBytes: 8 << 20}
	dir := filepath.Join(mounted, "log")
	log, err := openLabLog(vfs.OS(), dir, &labScheduler{}, config, nil) // its helper never runs, so it writes no zeros
	if err != nil {
		t.Fatal(err)
	}
	entry := func(i, term uint64, n int) raftpb.Entry {
		return raftpb.Entry{Index: i, Term: term, Data: bytes.Repeat([]byte{byte(term)}, n)}
	}
	var last uint64
	for ; last < 4; last++ {
		w := labWrite{group: 1, hs: raftpb.HardState{Term: 1, Vote: 1}, entries: []raftpb.Entry{entry(last+1, 1, 256<<10)}}
		if err := errors.Join(appendLab(log, []labWrite{w}), log.Sync()); err != nil {
			t.Fatal(err)
		}
	}
	syscall.Sync()
	fill(t, filepath.Join(pool, "filler"))

	refused := []labWrite{
		{group: 1, hs: raftpb.HardState{Term: 9, Vote: 2}},
		{group: 1, entries: []raftpb.Entry{entry(last+1, 9, 1000), entry(last+2, 9, 2<<20)}},
	}
	err = appendLab(log, refused)
	if err == nil {
		t.Skip("this thin disk had space after all")
	}
	if !isLabFull(err) {
		t.Fatalf("the pool is full, and the log says: %v", err)
	}
	if g := log.Group(1); g.LastIndex() != last || g.HardState().Term != 1 {
		t.Fatalf("after a refused append the log shows entries to %d and %+v", g.LastIndex(), g.HardState())
	}
	// The process dies: its lock is gone, and it has closed nothing.
	copied := filepath.Join(t.TempDir(), "log")
	copyDir(t, dir, copied)
	after, err := openLabLog(vfs.OS(), copied, &labScheduler{}, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	if g := after.Group(1); g.LastIndex() != last || g.HardState().Term != 1 {
		t.Errorf("after a refused append and a kill the log has entries to %d of %d, and %+v", g.LastIndex(), last, g.HardState())
	}
	vote := labWrite{group: 1, hs: raftpb.HardState{Term: 2, Vote: 3}}
	if err := errors.Join(appendLab(log, []labWrite{vote}), log.Sync()); err != nil {
		t.Errorf("a vote after that: %v", err)
	}
	if err := errors.Join(after.Close(), log.Close()); err != nil && !errors.Is(err, wal.ErrDiskFailed) {
		t.Error(err)
	}
}

// fill writes a file until the disk is full.
func fill(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	for p := bytes.Repeat([]byte{1}, 64<<10); len(p) >= 4096; {
		if _, err := f.Write(p); err != nil {
			p = p[:len(p)/2]
		}
	}
	_ = f.Close() // it may fail, because the disk is full
}

// copyDir copies the files of a directory.
func copyDir(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}
