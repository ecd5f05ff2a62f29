package wal

import (
	"math"
	"slices"
	"sort"
)

// The index says where a group's entries are, in memory that grows with bytes of log and not with entries: a mark stands
// for a run of entries of one term that lie behind one another, among records of other groups, within about a stride
// of one segment. A reader starts at the mark and walks from record to record. There are no pointers in a mark, so a
// large log costs the garbage collector nothing. What counts against Options.IndexBytes is the memory of the marks, including
// what a slice has room for. An entry costs 40 bytes at most, when more than a stride of other groups' records is between it
// and the next, so that it has a mark for itself. A group that writes more has a mark a stride: 0.2 bytes for an entry of 100.
//
// Invariant: marks are in order of index and do not overlap. At rest they leave no gaps either; while a log whose front
// was dropped is replayed, entries may come in any order.
//
// Rejected: a slot per entry (24 bytes each: it was half of what a log of small entries weighs on disk), and reading an
// index from disk (one more thing that can be wrong).

// mark is where a run of entries stands, and what is needed to check it and to answer Term without reading.
type mark struct {
	lo      uint64 // index of the first entry
	term    uint64 // of all of them
	segment uint32 // the low half of the id; 2^32 segments are more than a disk holds
	off     uint32 // a record at or before the first entry's
	seed    uint32 // the chain before that record
	end     uint32 // after the last entry's record, or further
	bytes   uint32 // of the group's own records
	n       uint16 // entries
	cut     bool   // entries were taken off the end, or behind it: a record of the next index may follow that is not the next entry
}

const (
	markBytes = 40
	// minStride is how far apart marks stand while there is memory for them: what a cold read of one entry costs.
	minStride = 32 << 10
	// maxStride bounds the same when there is not. 1 TiB of log then takes 40 MiB of marks.
	maxStride = 1 << 20
)

// hi returns the index after the last entry.
func (m *mark) hi() uint64 { return m.lo + uint64(m.n) }

// spot is the place of one record.
type spot struct {
	segment uint64
	off     int64
	end     int64
	seed    uint32 // the chain before it
}

// index is the marks of a group.
type index struct {
	marks []mark
	grow  int // the mark that put went to last, or -1: the only one that may be extended
}

// find returns the number of the first mark that ends after i: the one that holds i, if any does.
func (x *index) find(i uint64) int {
	return sort.Search(len(x.marks), func(k int) bool { return x.marks[k].hi() > i })
}

// at returns the mark that holds i, or nil.
func (x *index) at(i uint64) *mark {
	if k := x.find(i); k < len(x.marks) && x.marks[k].lo <= i {
		return &x.marks[k]
	}
	return nil
}

// last returns the highest index that is held, or 0.
func (x *index) last() uint64 {
	if len(x.marks) == 0 {
		return 0
	}
	return x.marks[len(x.marks)-1].hi() - 1
}

// eachSegment yields the bytes that stand in a segment, for each run of marks that lie in the same.
func (x *index) eachSegment(yield func(segment uint64, bytes int64)) {
	var bytes int64
	for i := range x.marks {
		m := &x.marks[i]
		bytes += int64(m.bytes)
		if i+1 == len(x.marks) || x.marks[i+1].segment != m.segment {
			yield(uint64(m.segment), bytes)
			bytes = 0
		}
	}
}

// put says that entry i, of a term, is at s, wherever it was before.
func (x *index) put(i, term uint64, s spot, stride int64) {
	if i <= x.last() {
		x.remove(i)
	}
	if x.extend(i, term, s, stride) {
		return
	}
	k := len(x.marks)
	if i <= x.last() {
		k = x.find(i)
	}
	x.marks = slices.Insert(x.marks, k, mark{
		lo: i, term: term, n: 1, segment: uint32(s.segment), off: uint32(s.off), end: uint32(s.end), seed: s.seed, bytes: uint32(s.end - s.off),
	})
	x.grow = k
}

// extend adds entry i to the mark that was put to last, if it continues that.
func (x *index) extend(i, term uint64, s spot, stride int64) bool {
	if x.grow < 0 || x.grow >= len(x.marks) {
		return false
	}
	m := &x.marks[x.grow]
	if m.cut || m.hi() != i || m.term != term || m.segment != uint32(s.segment) || s.end-int64(m.off) > stride || m.n == math.MaxUint16 {
		return false
	}
	m.n++
	m.bytes += uint32(s.end - s.off)
	m.end = uint32(s.end)
	return true
}

// remove takes entry i out, which another place will hold.
func (x *index) remove(i uint64) {
	k := x.find(i)
	if k == len(x.marks) || x.marks[k].lo > i {
		return
	}
	m := &x.marks[k]
	after := *m
	after.dropThrough(i)
	m.dropFrom(i)
	switch {
	case m.n == 0 && after.n == 0:
		x.marks = slices.Delete(x.marks, k, k+1)
	case m.n == 0:
		x.marks[k] = after
	case after.n > 0:
		x.marks = slices.Insert(x.marks, k+1, after)
	}
	// The mark that grows is told by its number, which may have changed; it is found again by what it ends with.
	if x.grow >= k {
		x.grow = x.find(i - 1)
	}
}

// dropFrom removes the entries at and above i.
func (m *mark) dropFrom(i uint64) {
	if i < m.hi() {
		m.shrink(uint16(max(i, m.lo) - m.lo))
		m.cut = true
	}
}

// dropThrough removes the entries up to i.
func (m *mark) dropThrough(i uint64) {
	if i >= m.lo {
		lo := min(i+1, m.hi())
		m.shrink(uint16(m.hi() - lo))
		m.lo = lo
	}
}

func (m *mark) shrink(n uint16) {
	m.bytes = uint32(uint64(m.bytes) * uint64(n) / uint64(m.n))
	m.n = n
}

// truncate removes the entries at and above i.
func (x *index) truncate(i uint64) {
	k := x.find(i)
	if k < len(x.marks) && x.marks[k].lo < i {
		x.marks[k].dropFrom(i)
		k++
	}
	x.marks = x.marks[:k]
	if k > 0 {
		x.marks[k-1].cut = true // also if it lost nothing: what follows it is an old record, which it must not be joined over
	}
	x.grow = -1
}

// compact removes the entries up to i, and returns about how many bytes they take.
func (x *index) compact(i uint64) (bytes int64) {
	k := x.find(i + 1)
	for _, m := range x.marks[:k] {
		bytes += int64(m.bytes)
	}
	if k < len(x.marks) {
		before := x.marks[k].bytes
		x.marks[k].dropThrough(i)
		bytes += int64(before - x.marks[k].bytes)
	}
	if k > 0 {
		x.marks = slices.Delete(x.marks, 0, k)
		if cap(x.marks) > max(4*len(x.marks), 64) {
			x.marks = slices.Clip(slices.Clone(x.marks)) // a log that is compacted keeps no memory for what it was
		}
		x.grow -= k // one that was removed is below 0 now
	}
	return bytes
}

// coarsen joins neighbours that lie within a stride.
func (x *index) coarsen(stride int64) {
	if len(x.marks) == 0 {
		return
	}
	kept := x.marks[:1]
	for _, m := range x.marks[1:] {
		a := &kept[len(kept)-1]
		if a.cut || a.hi() != m.lo || a.term != m.term || a.segment != m.segment || m.off < a.end || int64(m.end)-int64(a.off) > stride ||
			int(a.n)+int(m.n) > math.MaxUint16 {
			kept = append(kept, m)
			continue
		}
		a.n, a.bytes, a.end, a.cut = a.n+m.n, a.bytes+m.bytes, m.end, m.cut
	}
	x.marks = slices.Clip(slices.Clone(kept))
	x.grow = -1
}

// gap returns the first range [lo, hi) of indexes from first on that no mark holds though a later one exists.
func (x *index) gap(first uint64) (lo, hi uint64, ok bool) {
	for _, m := range x.marks {
		if m.lo > first {
			return first, m.lo, true
		}
		first = max(first, m.hi())
	}
	return 0, 0, false
}
