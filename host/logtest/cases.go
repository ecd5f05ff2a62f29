package logtest

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// What a log shows while it is open.

func hard(term, vote, commit uint64) raftpb.HardState {
	return raftpb.HardState{Term: term, Vote: vote, Commit: commit}
}

// reads checks what readers get, before anything is durable: entries of all types and sizes, every range of
// them, and the bounds of the log.
func reads(x *exam) {
	x.want[1] = groupState{}
	x.check()
	es := slices.Concat(entries(1, 4, 1, 100), entries(4, 6, 2, 0), entries(6, 8, 3, 70_000), entries(8, 10, 3, 1))
	es[1].Type, es[4].Type = raftpb.EntryConfChange, raftpb.EntryConfChangeV2
	x.append(wal.Write{Group: 1, Entries: es})
	x.check()
	g, s := x.log.Group(1), x.want[1]
	for lo := uint64(1); lo <= 10; lo++ {
		for hi := lo; hi <= 10; hi++ {
			got, err := g.Entries(lo, hi, ^uint64(0))
			if err != nil || len(got) != int(hi-lo) {
				x.fatalf("read of entries [%d, %d): %d of them, %v", lo, hi, len(got), err)
			}
			if why := s.compare(got, lo); why != "" {
				x.fatalf("read of entries [%d, %d): %s", lo, hi, why)
			}
		}
	}
	x.append() // nothing
	x.append(wal.Write{Group: 1})
	x.check()
}

// byteLimits checks that a read returns a prefix, at least one entry, within the limit, and all of a range
// that is far within the limit.
func byteLimits(x *exam) {
	x.append(wal.Write{Group: 1, Entries: slices.Concat(entries(1, 20, 1, 100), entries(20, 22, 1, 5000), entries(22, 30, 1, 10))})
	g, s := x.log.Group(1), x.want[1]
	for _, limit := range []uint64{0, 1, 99, 150, 1000, 5000, 5100, 20_000} {
		for lo := uint64(1); lo < 30; lo++ {
			got, err := g.Entries(lo, 30, limit)
			x.must("read", err)
			if why := s.compare(got, lo); why != "" || len(got) == 0 {
				x.fatalf("read from %d, at most %d bytes: %d entries; %s", lo, limit, len(got), why)
			}
			bytes, all := 0, 0
			for i := range got {
				bytes += len(got[i].Data)
			}
			for _, e := range s.entries[lo-1:] {
				all += len(e.Data) + 100 // more than any encoding adds
			}
			if len(got) > 1 && uint64(bytes) > limit {
				x.fatalf("read from %d, at most %d bytes: %d entries with %d bytes of data", lo, limit, len(got), bytes)
			}
			if uint64(all) <= limit && len(got) < int(30-lo) {
				x.fatalf("read from %d, at most %d bytes: %d entries; all %d of them have less than that", lo, limit, len(got), 30-lo)
			}
		}
	}
}

// replaces checks entries that replace others, and truncations.
func replaces(x *exam) {
	x.append(wal.Write{Group: 1, Entries: entries(1, 11, 1, 50)})
	for _, w := range []wal.Write{
		{Entries: entries(11, 12, 1, 50)},
		{Entries: entries(6, 9, 2, 40)},   // fewer than it replaces
		{Entries: entries(3, 15, 3, 600)}, // more
		{TruncateFrom: 15},                // nothing is there
		{TruncateFrom: 100},
		{TruncateFrom: 12},
		{TruncateFrom: 8, Entries: entries(8, 9, 4, 9)},
		{TruncateFrom: 4, Entries: entries(3, 5, 5, 9)},
		{TruncateFrom: 1},
		{Entries: entries(1, 4, 6, 20)},
		{Entries: entries(1, 2, 7, 20)},
	} {
		w.Group = 1
		x.append(w)
		x.check()
	}
}

// compacts checks that compaction drops entries at the beginning only, and keeps the last term.
func compacts(x *exam) {
	x.append(wal.Write{Group: 1, HardState: hard(2, 1, 7), Entries: slices.Concat(entries(1, 6, 1, 50), entries(6, 21, 2, 50))})
	for _, w := range []wal.Write{
		{CompactThrough: 3}, {CompactThrough: 3}, {CompactThrough: 1}, {CompactThrough: 5},
		{CompactThrough: 9}, // above the commit index, which it raises
		{HardState: hard(3, 0, 4)},
		{CompactThrough: 12, TruncateFrom: 16, Entries: entries(16, 18, 3, 50)},
		{CompactThrough: 17},
		{Entries: entries(18, 20, 3, 50)},
	} {
		w.Group = 1
		x.append(w)
		x.check()
	}
}

// snapshots checks a snapshot that the log has the last entry of, and one that takes the log's place.
func snapshots(x *exam) {
	x.append(wal.Write{Group: 1, HardState: hard(2, 1, 2), Entries: entries(1, 11, 2, 50)}, wal.Write{Group: 2, Snapshot: wal.Snapshot{Index: 7, Term: 3}})
	for _, w := range []wal.Write{
		{Snapshot: wal.Snapshot{Index: 4, Term: 2}}, // the log has it
		{Snapshot: wal.Snapshot{Index: 3, Term: 2}}, // older
		{Snapshot: wal.Snapshot{Index: 4, Term: 9}}, // the log begins there
		{Snapshot: wal.Snapshot{Index: 5, Term: 9}}, // the log has the index with another term
		{Entries: entries(6, 11, 9, 20)},
		{Snapshot: wal.Snapshot{Index: 6, Term: 3}, Entries: entries(7, 9, 3, 20)}, // and entries follow
		{Snapshot: wal.Snapshot{Index: 100, Term: 4}, HardState: hard(4, 0, 100)},  // beyond the log
		{Entries: entries(101, 104, 4, 20)},
		{Snapshot: wal.Snapshot{Index: 103, Term: 4}},
	} {
		w.Group = 1
		x.append(w)
		x.check()
	}
}

// hardStates checks that a hard state replaces the one before as a whole, and that none leaves it.
func hardStates(x *exam) {
	for _, w := range []wal.Write{
		{HardState: hard(1, 2, 0)}, {Entries: entries(1, 5, 1, 9)}, {HardState: hard(1, 2, 3)}, {HardState: hard(2, 0, 3)},
		{HardState: hard(2, 3, 0)}, {}, {CompactThrough: 2}, {HardState: hard(2, 3, 0)}, {TruncateFrom: 4},
	} {
		w.Group = 1
		x.append(w)
		x.check()
	}
}

// ordersParts checks that the parts of a write take effect in the order of its fields: snapshot or
// compaction, truncation, entries.
func ordersParts(x *exam) {
	x.append(wal.Write{Group: 1, Entries: entries(1, 11, 1, 30)}, wal.Write{Group: 2, Entries: entries(1, 11, 1, 30)})
	x.append(
		wal.Write{Group: 1, HardState: hard(2, 1, 5), CompactThrough: 4, TruncateFrom: 6, Entries: entries(6, 9, 2, 30)},
		wal.Write{Group: 2, HardState: hard(5, 1, 50), Snapshot: wal.Snapshot{Index: 50, Term: 5}, TruncateFrom: 51, Entries: entries(51, 53, 5, 30)},
	)
	x.check()
}

// manyGroups checks that groups share a log and nothing else, and that later writes of one append see the
// earlier ones of the same group.
func manyGroups(x *exam) {
	const groups = 300
	for round := range uint64(3) {
		var writes []wal.Write
		for id := uint64(1); id <= groups; id++ {
			at := id * 1_000_000_007 // ids need not be small
			if id == 1 {
				at = ^uint64(0)
			}
			last := x.wantLast(at)
			writes = append(writes,
				wal.Write{Group: at, HardState: hard(round+1, id%4, last), Entries: entries(last+1, last+1+id%4, round+1, int(id))},
				wal.Write{Group: at, Entries: entries(last+1+id%4, last+3+id%4, round+1, 7)})
			if id%5 == 0 {
				writes = append(writes, wal.Write{Group: at, CompactThrough: last + 1 + id%4})
			}
		}
		x.append(writes...)
		x.check()
	}
}

func (x *exam) wantLast(group uint64) uint64 {
	s := x.want[group]
	return s.last()
}

// keepsNoSlices checks that Append keeps neither the slice of writes nor that of entries, and that a slice
// that was read belongs to the reader.
func keepsNoSlices(x *exam) {
	for _, size := range []int{10, 20_000} {
		id := uint64(size)
		es := entries(1, 6, 1, size)
		writes := []wal.Write{{Group: id, HardState: hard(1, 1, 1), Entries: es}}
		x.want.apply(wal.Write{Group: id, HardState: hard(1, 1, 1), Entries: slices.Clone(es)})
		x.must("append", x.log.Append(writes))
		clear(es)
		clear(writes)
		x.check()
		for range 2 {
			got, err := x.log.Group(id).Entries(1, 6, ^uint64(0))
			x.must("read", err)
			clear(got)
			got, _ = x.log.Group(id).Recent(1, 6, ^uint64(0))
			clear(got)
			x.check()
		}
	}
}

// invalidWrites checks that a write that breaks the rules is refused with all others of its append,
// changes nothing, and names its group.
func invalidWrites(x *exam) {
	x.append(wal.Write{Group: 1, HardState: hard(3, 1, 5), Entries: entries(1, 11, 3, 20)}, wal.Write{Group: 2, Entries: entries(1, 3, 1, 20)})
	x.append(wal.Write{Group: 1, CompactThrough: 4})
	wrongIndex := entries(11, 14, 3, 5)
	wrongIndex[1].Index = 14
	for _, w := range []wal.Write{
		{Entries: entries(12, 13, 3, 5)}, // a gap
		{Entries: entries(0, 3, 3, 5)},   // no index
		{Entries: entries(4, 6, 3, 5)},   // compacted
		{Entries: wrongIndex},            // not contiguous
		{TruncateFrom: 4},                // compacted
		{CompactThrough: 11},             // above the end
		{CompactThrough: 6, Snapshot: wal.Snapshot{Index: 7, Term: 3}}, // both
		{Snapshot: wal.Snapshot{Term: 3}},                              // no index
		{TruncateFrom: 9, Entries: entries(10, 12, 3, 5)},              // a gap, once it is truncated
		{Delete: true, HardState: hard(4, 1, 1)},                       // of a deleted group nothing is left
		{Delete: true, Entries: entries(11, 12, 3, 5)},
	} {
		w.Group = 1
		valid := wal.Write{Group: 2, HardState: hard(9, 1, 1), Entries: entries(3, 5, 9, 20)}
		for _, writes := range [][]wal.Write{{w}, {valid, w}, {w, valid}, {valid, w, {Group: 3, Entries: entries(1, 2, 1, 1)}}} {
			err := x.log.Append(writes)
			x.checkInvalid(err, writes, 1)
			x.check()
		}
	}
	// A write is judged as the writes before it leave its group.
	writes := []wal.Write{{Group: 1, Entries: entries(11, 13, 3, 5)}, {Group: 1, TruncateFrom: 8}, {Group: 1, Entries: entries(12, 13, 3, 5)}}
	x.checkInvalid(x.log.Append(writes), writes, 1)
	x.check()
	x.append(writes[:2]...)
	x.append(wal.Write{Group: 2, Entries: entries(3, 5, 9, 20)})
	x.check()
	x.must("sync after refused writes", x.log.Sync())
}

// checkInvalid checks the error of an append that an invalid write of a group was in.
func (x *exam) checkInvalid(err error, writes []wal.Write, group uint64) {
	var invalid *wal.InvalidWriteError
	switch {
	case !errors.Is(err, wal.ErrInvalidWrite):
		x.fatalf("append of %s: %v, want wal.ErrInvalidWrite", describe(writes), err)
	case !errors.As(err, &invalid) || invalid.Group != group:
		x.fatalf("append of %s: %v, want a *wal.InvalidWriteError of group %d", describe(writes), err, group)
	}
}

// deletes checks that a deleted group is empty for good, and that nothing else is changed.
func deletes(x *exam) {
	x.append(wal.Write{Group: 1, HardState: hard(3, 1, 5), Entries: entries(1, 11, 3, 20)}, wal.Write{Group: 2, Entries: entries(1, 11, 3, 20)})
	old := x.log.Group(1)
	x.append(wal.Write{Group: 1, Delete: true})
	x.check()
	deleted := groupState{deleted: true}
	refuses := func() {
		if why := deleted.diff(old); why != "" {
			x.fatalf("a group that was asked for before it was deleted: %s", why)
		}
		for _, w := range []wal.Write{{Group: 1, HardState: hard(9, 1, 0)}, {Group: 1, Snapshot: wal.Snapshot{Index: 5, Term: 9}}, {Group: 1, Entries: entries(1, 3, 9, 9)}} {
			writes := []wal.Write{{Group: 4, HardState: hard(1, 1, 0)}, w}
			err := x.log.Append(writes)
			if x.checkInvalid(err, writes, 1); !errors.Is(err, wal.ErrDeleted) {
				x.fatalf("append of %s: %v, want wal.ErrDeleted", describe(writes), err)
			}
		}
		x.check()
	}
	refuses()
	x.must("second deletion", x.log.DeleteGroup(1))
	x.must("deletion of a group that was never written to", x.log.DeleteGroup(7))
	x.want.apply(wal.Write{Group: 7, Delete: true})
	refuses()
	writes := []wal.Write{{Group: 2, Delete: true}, {Group: 2, Entries: entries(1, 2, 1, 1)}}
	x.checkInvalid(x.log.Append(writes), writes, 2)
	x.check()
	x.append(wal.Write{Group: 2, Entries: entries(11, 12, 3, 1)}, wal.Write{Group: 2, Delete: true}, wal.Write{Group: 2, Delete: true})
	x.check()
	if x.store.Reopens {
		id, generation := x.log.ID(), x.log.Fence().Generation
		x.close()
		x.open()
		x.checkIdentity(id, generation)
		old = x.log.Group(1)
		refuses()
	}
}

// recent checks that Recent shows what the log holds, within the limits, or nothing, after every change. If
// it never shows anything, all reads of the log are slow ones, which is allowed.
func recent(x *exam) {
	w := workload{rng: rand.New(rand.NewPCG(1, 1))}
	for range 150 {
		x.append(w.next(x.want)...)
		for _, id := range slices.Sorted(maps.Keys(x.want)) {
			s, g := x.want[id], x.log.Group(id)
			lo, n, limit := uint64(w.rng.IntN(int(s.last())+3)), uint64(w.rng.IntN(10)), uint64(w.rng.IntN(3000))
			es, ok := g.Recent(lo, lo+n, limit)
			bytes := 0
			for i := range es {
				bytes += len(es[i].Data)
			}
			switch {
			case n == 0 && (!ok || len(es) > 0):
				x.fatalf("Recent says that an empty range is not there, or that it has %d entries", len(es))
			case !ok && len(es) > 0, ok && n > 0 && len(es) == 0, len(es) > int(n):
				x.fatalf("Recent of [%d, %d): %d entries, %v", lo, lo+n, len(es), ok)
			case ok && n > 0 && lo+n-1 > s.last():
				x.fatalf("Recent of [%d, %d): the log ends at %d, so Entries returns an error, and Recent says that they are there", lo, lo+n, s.last())
			case len(es) > 1 && bytes > int(limit):
				x.fatalf("Recent of [%d, %d), at most %d bytes: %d entries with %d bytes of data", lo, lo+n, limit, len(es), bytes)
			}
			if why := s.compare(es, lo); why != "" {
				x.fatalf("group %d, Recent of [%d, %d): %s", id, lo, lo+n, why)
			}
		}
	}
}

// flush makes everything appended count.
func (x *exam) flush() {
	f, wait, err := x.log.TakeSync()
	x.must("TakeSync", err)
	if f == nil && wait == 0 {
		return
	}
	if f == nil {
		x.must("Sync", x.log.Sync())
		return
	}
	x.must("Flush.Wait", f.Wait())
	_, err = f.Complete()
	x.must("Flush.Complete", err)
}

// flushes checks flushes without a crash: there is nothing to flush when everything counts, Complete says
// whether more was appended, and flushes may be left alone or completed in any order.
func flushes(x *exam) {
	x.append(wal.Write{Group: 1, Entries: entries(1, 5, 1, 50)})
	x.flush()
	f, wait, err := x.log.TakeSync()
	if x.must("TakeSync", err); f != nil || wait != 0 {
		x.fatalf("everything counts, and TakeSync returns a flush (%v) or a delay (%v)", f != nil, wait)
	}
	x.must("Sync of nothing", x.log.Sync())
	next := func() uint64 { return x.wantLast(1) + 1 }
	add := func() { x.append(wal.Write{Group: 1, Entries: entries(next(), next()+2, 1, 50)}) }
	add()
	if f, wait, err = x.log.TakeSync(); f == nil && err == nil && wait > 0 {
		return // the log's mode delays flushes; which appends one covers, a case with crashes says
	}
	x.must("TakeSync", err)
	if f == nil {
		return // Append makes durable what it appends; a case with crashes says whether that is so
	}
	x.must("Wait", f.Wait())
	if more, err := f.Complete(); err != nil || more {
		x.fatalf("nothing was appended since the flush was taken, and Complete says %v, %v", more, err)
	}
	add()
	f, _, err = x.log.TakeSync()
	x.must("TakeSync", err)
	add()
	x.must("Wait", f.Wait())
	if more, err := f.Complete(); err != nil || !more {
		x.fatalf("an append came since the flush was taken, and Complete says %v, %v", more, err)
	}
	x.flush()
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {2}, {}} { // those not named are left alone
		var fs [3]interface {
			Wait() error
			Complete() (bool, error)
		}
		for i := range fs {
			add()
			f, _, err := x.log.TakeSync()
			if x.must("TakeSync", err); f == nil {
				x.fatalf("an append needs no flush, while an earlier flush is under way")
			}
			fs[i] = f
		}
		for _, i := range order {
			x.must("Wait", fs[i].Wait())
			_, err := fs[i].Complete()
			x.must("Complete", err)
		}
		x.check()
		x.flush()
	}
	x.must("Sync", x.log.Sync())
	x.check()
}

// closes checks that a closed log refuses everything that would change it, with wal.ErrClosed.
func closes(x *exam) {
	x.append(wal.Write{Group: 1, Entries: entries(1, 5, 1, 50)})
	l := x.log
	x.close()
	x.must("second close", l.Close())
	_, _, err := l.TakeSync()
	for what, err := range map[string]error{
		"Append": l.Append([]wal.Write{{Group: 1, Entries: entries(5, 6, 1, 50)}}), "TakeSync": err, "Sync": l.Sync(), "DeleteGroup": l.DeleteGroup(1),
	} {
		if !errors.Is(err, wal.ErrClosed) {
			x.fatalf("%s of a closed log: %v, want wal.ErrClosed", what, err)
		}
	}
}

// histories compares a log with the model through random writes.
func histories(x *exam) {
	for seed := range uint64(3) {
		w := workload{rng: rand.New(rand.NewPCG(seed, 2))}
		for range 100 {
			x.append(w.next(x.want)...)
			if w.rng.IntN(3) == 0 {
				x.flush()
			}
			x.check()
		}
	}
}

// reopens checks that Close makes everything durable, and which parts of a log never change.
func reopens(x *exam) {
	if x.log.ID() == [16]byte{} {
		x.fatalf("the log's id is 0; draw 128 random bits when the log is made")
	}
	x.append(wal.Write{Group: 1, HardState: hard(3, 1, 5), Entries: entries(1, 11, 3, 20)}, wal.Write{Group: 2, Snapshot: wal.Snapshot{Index: 7, Term: 1}})
	x.append(wal.Write{Group: 1, CompactThrough: 4, TruncateFrom: 10}, wal.Write{Group: 3, Entries: entries(1, 2, 1, 0)}, wal.Write{Group: 3, Delete: true})
	for range 3 {
		id, generation := x.log.ID(), x.log.Fence().Generation
		x.close()
		x.open()
		x.checkIdentity(id, generation)
		x.check()
		x.append(wal.Write{Group: 1, Entries: entries(x.wantLast(1)+1, x.wantLast(1)+3, 3, 20)})
	}
}

// reopenedHistories is histories over many lives.
func reopenedHistories(x *exam) {
	w := workload{rng: rand.New(rand.NewPCG(7, 2))}
	for range 120 {
		x.append(w.next(x.want)...)
		if w.rng.IntN(6) == 0 {
			id, generation := x.log.ID(), x.log.Fence().Generation
			x.close()
			x.open()
			x.checkIdentity(id, generation)
		}
		x.check()
	}
}
