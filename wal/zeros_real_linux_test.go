package wal_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// TestRealSyncsCommitNoInode counts the transactions of ext4's journal while a log grows, with syncs of
// 100 KiB. In the first segment, which gets its zeros while it is the tail, syncs commit transactions. After
// it none does. In a file that is only allocated each sync does, which shows that they are counted.
func TestRealSyncsCommitNoInode(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: making and mounting a filesystem takes a second")
	}
	image, mounted := filepath.Join(t.TempDir(), "disk"), t.TempDir()
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 192<<20)); err != nil {
		t.Fatal(err)
	}
	run(t, "mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
	run(t, "mount", "-o", "loop,commit=300", image, mounted)
	t.Cleanup(func() { unmount(t, mounted) })
	device, err := exec.Command("findmnt", "-n", "-o", "SOURCE", mounted).Output()
	if err != nil {
		t.Skipf("the device of the filesystem is not known: %v", err)
	}
	info := filepath.Join("/proc/fs/jbd2", filepath.Base(strings.TrimSpace(string(device)))+"-8", "info")
	transactions := func() (n int) {
		data, err := os.ReadFile(info)
		if err != nil {
			t.Skipf("the journal is not counted here: %v", err)
		}
		if _, err := fmt.Sscanf(string(data), "%d transactions", &n); err != nil {
			t.Fatalf("%s says %q", info, data)
		}
		return n
	}

	const rounds = 30
	file, err := vfs.OS().Create(filepath.Join(mounted, "allocated"))
	if err == nil {
		err = errors.Join(file.Preallocate(0, 8<<20), file.Sync())
	}
	before := transactions()
	for i := range int64(rounds) {
		_, werr := file.WriteAt(make([]byte, 100<<10), i*100<<10)
		err = errors.Join(err, werr, file.Sync())
	}
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	allocated := transactions() - before
	if allocated < rounds/2 {
		t.Skipf("%d syncs of an allocated file made %d transactions: this journal is counted otherwise", rounds, allocated)
	}

	sched := &labScheduler{}
	log, err := openLabLog(vfs.OS(), filepath.Join(mounted, "log"), sched, labConfig{segmentBytes: 8 << 20}, nil)
	if err != nil {
		t.Fatal(err)
	}
	commits, syncs := map[uint64]int{}, map[uint64]int{} // by the number of segments
	for i := uint64(1); log.Stats().Segments <= 6; i++ {
		for range 40 { // the helper has time
			sched.step()
		}
		before, segments := transactions(), log.Stats().Segments
		w := labWrite{group: 1, entries: []raftpb.Entry{{Index: i, Term: 1, Data: bytes.Repeat([]byte{7}, 100<<10)}}}
		if err := errors.Join(appendLab(log, []labWrite{w}), log.Sync()); err != nil {
			t.Fatal(err)
		}
		if after := log.Stats().Segments; after == segments { // a roll may find the inode of a file that was just made
			commits[after] += transactions() - before
			syncs[after]++
		}
	}
	t.Logf("transactions by the syncs of each segment: %v, of %v syncs; %d by %d of an allocated file", commits, syncs, allocated, rounds)
	for segment, n := range commits {
		if segment > 1 && n > 0 {
			t.Errorf("%d syncs in segment %d committed a transaction", n, segment)
		}
	}
	var stats wal.Stats = log.Stats()
	if stats.YoungTails != 1 || stats.TailYoung {
		t.Errorf("%+v", stats)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}
