package wal

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// appendRounds appends one entry of n bytes to each group, for each index beginning with from and ending with
// through.
func appendRounds(t testing.TB, l *Log, groups, from, through uint64, n int) {
	t.Helper()
	for i := from; i <= through; i++ {
		var writes []Write
		for g := range groups {
			writes = append(writes, Write{Group: g + 1, Entries: []raftpb.Entry{entry(i, 1, n)}})
			if len(writes) == 500 || g == groups-1 {
				mustAppend(t, l, writes...)
				writes = writes[:0]
			}
		}
	}
}

// Many groups with small entries: more than a stride of records of other groups is between two entries of a
// group. The index must stay within its bound, terms must be in memory, and old entries must be readable.
func TestManyGroupsKeepTheBoundOfTheIndex(t *testing.T) {
	enumerates(t)
	const groups, rounds, size = 2000, 40, 100
	opts := Options{FS: vfs.Memory(), Dir: testDir, Scheduler: &manual{}, Clock: &fakeClock{}, Owner: 7, SegmentBytes: 1 << 20, CacheBytes: -1, IndexBytes: 256 << 10}
	l := mustOpen(t, opts)
	for i := uint64(1); i <= rounds; i++ {
		appendRounds(t, l, groups, i, i, size)
		if s := l.Stats(); s.IndexBytes > uint64(opts.IndexBytes) {
			t.Fatalf("round %d: the index takes %d bytes, its bound is %d", i, s.IndexBytes, opts.IndexBytes)
		}
	}
	reads := l.Stats().ColdReads
	for _, id := range []uint64{1, groups / 2, groups} {
		for i := uint64(1); i <= rounds; i++ {
			if term, err := l.Group(id).Term(i); term != 1 || err != nil {
				t.Fatalf("group %d: term of %d is %d, %v", id, i, term, err)
			}
		}
	}
	if n := l.Stats().ColdReads; n != reads {
		t.Errorf("Term read the disk %d times", n-reads)
	}
	for _, id := range []uint64{1, groups / 2, groups} {
		for _, i := range []uint64{1, rounds / 2, rounds} {
			es, err := l.Group(id).Entries(i, i+1, 0)
			if err != nil || !sameEntry(es[0], entry(i, 1, size)) {
				t.Errorf("group %d, entry %d: %v", id, i, err)
			}
		}
		if es, err := l.Group(id).Entries(1, rounds+1, 1<<20); err != nil || len(es) != rounds {
			t.Errorf("group %d: %d entries, %v", id, len(es), err)
		}
	}
}

// The oldest segment holds one small entry and the hard state of each of many groups. The work to free it
// grows with the bytes that are moved, not with the number of groups or with its square.
func TestFreeingASegmentOfManyGroupsTakesFewPieces(t *testing.T) {
	const groups = 2000
	sched := &manual{}
	opts := Options{FS: vfs.Memory(), Dir: testDir, Scheduler: sched, Clock: &fakeClock{}, Owner: 7, SegmentBytes: 4 << 20, CacheBytes: -1}
	l := mustOpen(t, opts)
	var writes []Write
	for g := range uint64(groups) {
		writes = append(writes, Write{Group: g + 2, HardState: raftpb.HardState{Term: 1, Vote: 1}, Entries: entries(1, 2, 1, 100)})
	}
	mustAppend(t, l, writes...)
	for i := uint64(1); l.tail.seg.id < 5; i++ {
		mustAppend(t, l, Write{Group: 1, Entries: entries(i, i+1, 1, 1<<20)}, Write{Group: 1, CompactThrough: i})
	}
	mustSync(t, l)
	pieces := 0
	for w := sched.tasks[0]; w.woken.Load() && pieces < 10_000; pieces++ {
		sched.step()
	}
	if s := l.Stats(); s.MovedEntries != groups || s.Dropped == 0 || pieces > 100 {
		t.Errorf("%d pieces of work, %d entries moved, %d segments dropped", pieces, s.MovedEntries, s.Dropped)
	}
	for g := range uint64(groups) {
		if es, err := l.Group(g+2).Entries(1, 2, 0); err != nil || !sameEntry(es[0], entry(1, 1, 100)) {
			t.Fatalf("group %d: %v", g+2, err)
		}
	}
}
