package wal

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/vfs/crashfs"
)

// The index behaves like its twin, a map from an entry's index to its place. Entries are appended, moved,
// truncated and compacted in any order. The run that holds an entry must have its term and cover its record,
// and the counts per segment must match the runs.
func TestIndexTwin(t *testing.T) {
	type standing struct {
		term uint64
		spot spot
	}
	rapid.Check(t, func(t *rapid.T) {
		x, twin := index{grow: -1}, map[uint64]standing{}
		all := newIndexes(2000)
		all.indexStride = 2000
		pos, segment, term := int64(64), uint64(1), uint64(1)
		put := func(i, term uint64) {
			n := int64(48 + 8*rapid.IntRange(0, 40).Draw(t, "size"))
			s := spot{segment: segment, off: pos, end: pos + n}
			pos += n
			if _, held := twin[i]; held && rapid.Bool().Draw(t, "moved") {
				x.move(i, term, s, &all)
			} else {
				x.put(i, term, s, &all)
			}
			twin[i] = standing{term, s}
		}
		last := func() (n uint64) {
			for i := range twin {
				n = max(n, i)
			}
			return n
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := uint64(rapid.IntRange(1, 40).Draw(t, "i"))
			switch rapid.IntRange(0, 7).Draw(t, "op") {
			case 0:
				x.truncate(i, &all)
				for k := range twin {
					if k >= i {
						delete(twin, k)
					}
				}
			case 1:
				x.compact(i, &all)
				for k := range twin {
					if k <= i {
						delete(twin, k)
					}
				}
			case 2:
				segment, pos = segment+1, 64
			case 3:
				term++
			case 4: // moves entries, whether the twin has them or not
				for k := i; k < i+5; k++ {
					if p, ok := twin[k]; ok {
						put(k, p.term)
					} else {
						put(k, term)
					}
				}
			case 5:
				all.indexStride *= 2
				x.coarsen(&all)
			default:
				for range 3 {
					put(last()+1, term)
				}
			}
			end := uint64(0)
			for _, m := range x.runs {
				if m.n == 0 || m.lo < end {
					t.Fatalf("runs %+v", x.runs)
				}
				end = m.hi()
			}
			if x.last() != last() {
				t.Fatalf("last %d, want %d", x.last(), last())
			}
			if err := all.check([]*index{&x}); err != "" {
				t.Fatal(err)
			}
			for i := uint64(1); i < 60; i++ {
				m, p, ok := x.at(i), twin[i], twin[i] != standing{}
				if (m != nil) != ok {
					t.Fatalf("entry %d: %+v, want %v", i, m, ok)
				}
				if ok && (m.term != p.term || !m.covers(p.spot.segment, p.spot.off)) {
					t.Fatalf("entry %d: %+v, want %+v", i, m, p)
				}
			}
		}
	})
}

// An entry that was moved is not joined to the one before it, also when the index gets coarser later. A
// voided write with its index and term may be between the two, and a reader would find that one first.
func TestMovedEntryIsNotJoinedOverAVoid(t *testing.T) {
	x, all := index{grow: -1}, newIndexes(1<<20)
	at := func(off int64) spot { return spot{segment: 1, off: off, end: off + 64} }
	x.put(1, 7, at(64), &all)
	x.put(2, 7, at(40_000), &all)
	x.move(2, 7, at(100_000), &all) // somewhere between 128 and 40,000: a write of entry 2 that was voided
	all.indexStride = maxIndexStride
	x.coarsen(&all)
	if m := x.at(2); m == nil || m.lo != 2 || m.off != 100_000 {
		t.Errorf("entry 2 is in run %+v of %+v, want a run of its own", m, x.runs)
	}
}

// The memory of the index depends on the bytes of log, not on the number of entries, and stays within its
// bound.
func TestIndexBytesAreBounded(t *testing.T) {
	enumerates(t)
	for _, row := range []struct {
		entryBytes int
		groups     uint64
		limit      int64
		most       float64 // bytes of index per entry
	}{
		{100, 1, 0, 0.35}, {1024, 1, 0, 2.5}, {100, 64, 0, 16}, {1024, 1, 4 << 10, 0.3}, {64 << 10, 1, 0, 60},
	} {
		opts := testOptions(crashfs.New(), &manual{})
		opts.SegmentBytes, opts.CacheBytes, opts.IndexBytes = 8<<20, -1, row.limit
		l := mustOpen(t, opts)
		n := uint64(0)
		for l.Stats().AppendedBytes < 16<<20 {
			var writes []Write
			for g := range row.groups {
				writes = append(writes, Write{Group: g + 1, Entries: entries(n+1, n+9, 1, row.entryBytes)})
			}
			mustAppend(t, l, writes...)
			n += 8
		}
		got := float64(l.Stats().IndexBytes) / float64(n*row.groups)
		t.Logf("%d groups, entries of %d bytes: %.2f bytes of index per entry", row.groups, row.entryBytes, got)
		if got > row.most || row.limit > 0 && l.Stats().IndexBytes > uint64(row.limit) {
			t.Errorf("want at most %.2f bytes per entry; the total is %d bytes, the limit %d", row.most, l.Stats().IndexBytes, row.limit)
		}
		for _, i := range []uint64{1, 2, n / 2, n} {
			es, err := l.Group(1).Entries(i, i+1, 0)
			if err != nil || !sameEntry(es[0], entry(i, 1, row.entryBytes)) {
				t.Errorf("entry %d: %v", i, err)
			}
		}
	}
}

// An entry is replaced by another one of the same index and term, in a run of its own, and then the index
// gets coarser. The run before it must not extend over the old record to the new one. Otherwise a reader
// finds the old record first.
func TestCoarseIndexSkipsWhatWasReplaced(t *testing.T) {
	opts := testOptions(crashfs.New(), &manual{})
	opts.SegmentBytes, opts.CacheBytes = 1<<20, -1
	l, want := mustOpen(t, opts), twin{}
	other := entry(2, 1, 20_000)
	other.Data[0]++
	for _, w := range []Write{{Group: 1, Entries: entries(1, 3, 1, 20_000)}, {Group: 1, Entries: entries(2, 3, 1, 20_000)}} {
		if len(w.Entries) == 1 {
			w.Entries[0] = other
		}
		mustAppend(t, l, w)
		want.apply([]Write{w})
	}
	want.check(t, l)
	l.opts.IndexBytes = 1
	l.table.boundIndex()
	want.check(t, l)
}

// An entry that follows the last one is a part of its run also right after another run was written to.
func TestEntriesAtTheEndShareARun(t *testing.T) {
	x, all := index{grow: -1}, newIndexes(1<<20)
	at := func(off int64) spot { return spot{segment: 1, off: off, end: off + 64} }
	x.put(1, 7, at(64), &all)
	x.put(2, 8, at(128), &all)
	x.put(3, 8, at(192), &all)
	x.move(1, 7, at(256), &all)
	x.put(4, 8, at(320), &all)
	if m := x.at(4); len(x.runs) != 2 || m == nil || m.lo != 2 {
		t.Errorf("the runs are %+v, want entries 2 to 4 in one", x.runs)
	}
}
