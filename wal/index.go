package wal

import (
	"math"
	"slices"
	"sort"

	"github.com/millrace/millrace/wal/record"
)

// The index says where a group's entries are, in memory that Options.IndexBytes bounds. It consists of
// runs: a run is a number of entries of one term that follow one another in the log, with records of other
// groups between them, within a stride of log. A reader starts where the run begins and walks from record
// to record. A run holds no pointers, so a large log costs the garbage collector nothing. The bound counts
// the memory of the runs, with the spare capacity of their slices.
//
// The stride grows when the runs take too much memory (needs.go). While there is enough, the stride is a
// small part of a segment, and a run stays within its segment. A stride of a segment or more lets a run
// span segments; a reader can cross because each segment begins with a link that says where the one before
// ended. In the end a group has one run for each sequence of entries of one term: groups × terms × 48 bytes
// remain when IndexBytes is too small. Places get coarse, terms do not: Term never reads from disk.
//
// Invariant: runs are in order of index and do not overlap. They leave no gaps, except while a recovery
// replays a log whose first segments were dropped, where entries may come in any order.
//
// Invariant: from the beginning of a run on, the first record of its group with the index and term of an
// entry is that entry, or the same entry before it was moved. Otherwise a reader could meet an entry that
// was truncated, or that a voided write left. So a run is cut where entries were taken off, and no run
// reaches over such a place.
//
// Rejected: a slot per entry (24 bytes each, half of what a log of small entries takes on disk), reading an
// index from disk (one more thing that can be wrong), and at least one run per segment (with 10,000 groups
// of small entries that was a quarter of the log).

// run is where a sequence of entries stands, with what is needed to check them and to answer Term without
// reading.
type run struct {
	lo      uint64 // index of the first entry
	term    uint64 // of all of them
	n       uint32 // entries
	segment uint32 // the low half of the id; 2^32 segments are more than a disk holds
	off     uint32 // a record at or before the first entry's
	seed    uint32 // the chain before that record
	last    uint32 // the segment of the last entry, or a later one
	end     uint32 // after the last entry's record there, or further
	units   uint32 // of the group's own records, in units of recordAlign bytes
	cut     bool   // entries were taken off the end, or behind it: a record of the next index may follow that is not the next entry
	loose   uint16 // since which epoch of sweeps entries are taken off the beginning, so that perhaps none is in segment; 0 if none is
}

const (
	runBytes = 48
	// minIndexStride is how much log a run covers while there is memory enough: the cost of a cold read of
	// one entry.
	minIndexStride = 32 << 10
	// maxIndexStride is more than any log.
	maxIndexStride = 1 << 50
)

// hi returns the index after the last entry.
func (m *run) hi() uint64 { return m.lo + uint64(m.n) }

// bytes returns how many bytes the group's own records take.
func (m *run) bytes() int64 { return int64(m.units) * record.Alignment }

// covers reports whether a record that begins at a place may be one of the run's.
func (m *run) covers(segment uint64, off int64) bool {
	from, to := position{uint64(m.segment), int64(m.off)}, position{uint64(m.last), int64(m.end)}
	at := position{segment, off}
	return !at.before(from) && at.before(to)
}

// spot is the place of one record.
type spot struct {
	segment uint64
	off     int64
	end     int64
	seed    uint32 // the chain before it
}

// index is the runs of one group. What they take and need is counted in indexes.
type index struct {
	runs []run
	grow int // the run that was put to last, or -1
}

// find returns the number of the first run that ends after i: the run that holds i, if any does.
func (x *index) find(i uint64) int {
	if n := len(x.runs); n > 0 && x.runs[n-1].lo <= i { // most ask for the end
		if x.runs[n-1].hi() > i {
			return n - 1
		}
		return n
	}
	return sort.Search(len(x.runs), func(k int) bool { return x.runs[k].hi() > i })
}

// at returns the run that holds i, or nil.
func (x *index) at(i uint64) *run {
	if k := x.find(i); k < len(x.runs) && x.runs[k].lo <= i {
		return &x.runs[k]
	}
	return nil
}

// last returns the highest index that is held, or 0.
func (x *index) last() uint64 {
	if len(x.runs) == 0 {
		return 0
	}
	return x.runs[len(x.runs)-1].hi() - 1
}

// put notes that entry i, of a term, is at s. No entry at or above i is held, except during the replay of a
// log whose first segments were dropped.
func (x *index) put(i, term uint64, s spot, all *indexes) {
	if i <= x.last() {
		x.remove(i, all)
	}
	k := x.grow
	if n := len(x.runs); n > 0 && i == x.last()+1 {
		k = n - 1
	}
	if k >= 0 && x.runs[k].extend(i, term, s, all) {
		x.grow = k
		return
	}
	x.putAfter(k, i, term, s, all)
}

// extend adds entry i to m if m is in one segment and continues there, as most entries of a busy group
// do. It is the fast path of putAfter: no run is joined, and m is not counted again.
func (m *run) extend(i, term uint64, s spot, all *indexes) bool {
	units := uint32((s.end - s.off) / record.Alignment)
	if m.cut || m.hi() != i || m.term != term || m.segment != uint32(s.segment) || m.last != m.segment || uint32(s.off) < m.end ||
		s.end-int64(m.off) > all.indexStride || m.n == math.MaxUint32 || m.units > math.MaxUint32-units {
		return false
	}
	m.n, m.units, m.end = m.n+1, m.units+units, uint32(s.end)
	all.live += s.end - s.off
	all.of(m.segment).bytes += s.end - s.off
	return true
}

// move notes that entry i, which is held already, was written again at s. A voided write with this index
// may stand between the entry before and s, or between s and the entry after. So i is not joined to these
// two, unless one was moved right after the other.
func (x *index) move(i, term uint64, s spot, all *indexes) {
	next := x.grow >= 0 && x.runs[x.grow].hi() == i
	x.remove(i, all)
	x.putAfter(x.grow, i, term, s, all)
	if k := x.grow; !next && k > 0 && x.runs[k].lo == i {
		x.runs[k-1].cut = true
	}
}

// putAfter makes an entry a part of run k, or gives it a run of its own.
func (x *index) putAfter(k int, i, term uint64, s spot, all *indexes) {
	one := run{
		lo: i, term: term, n: 1, segment: uint32(s.segment), off: uint32(s.off), seed: s.seed,
		last: uint32(s.segment), end: uint32(s.end), units: uint32((s.end - s.off) / record.Alignment),
	}
	if k >= 0 && all.joins(&x.runs[k], &one) {
		m := &x.runs[k]
		all.sub(m)
		m.join(&one)
		all.add(m)
		x.grow = k
		return
	}
	k = len(x.runs)
	if i <= x.last() {
		k = x.find(i)
	}
	x.insert(k, one, all)
	x.grow = k
}

// insert puts m before run k.
func (x *index) insert(k int, m run, all *indexes) {
	if n := len(x.runs); n == cap(x.runs) {
		x.resize(x.runs, n+1+n/2, all)
	}
	x.runs = slices.Insert(x.runs, k, m)
	all.add(&m)
}

// resize makes the index a copy of kept, with the given capacity.
func (x *index) resize(kept []run, capacity int, all *indexes) {
	before := cap(x.runs)
	if capacity == 0 {
		x.runs = nil
	} else {
		x.runs = append(make([]run, 0, capacity), kept...)
	}
	all.capacity += cap(x.runs) - before
}

// join adds what follows m.
func (m *run) join(next *run) {
	m.n, m.units, m.last, m.end, m.cut = m.n+next.n, m.units+next.units, next.last, next.end, next.cut
}

// remove takes entry i out, because another place will hold it.
func (x *index) remove(i uint64, all *indexes) {
	k := x.find(i)
	if k == len(x.runs) || x.runs[k].lo > i {
		return
	}
	m := &x.runs[k]
	all.sub(m)
	after := *m
	after.dropThrough(i, all.epoch)
	m.dropFrom(i)
	switch {
	case m.n == 0 && after.n == 0:
		x.runs = slices.Delete(x.runs, k, k+1)
		if x.grow == k {
			x.grow = -1
		} else if x.grow > k {
			x.grow--
		}
	case m.n == 0:
		*m = after
		all.add(m)
	case after.n == 0:
		all.add(m)
	default:
		all.add(m)
		x.insert(k+1, after, all)
		if x.grow >= k {
			x.grow++
		}
	}
}

// dropFrom removes the entries at and above i.
func (m *run) dropFrom(i uint64) {
	if i < m.hi() {
		m.shrink(uint32(max(i, m.lo) - m.lo))
		m.cut = true
	}
}

// dropThrough removes the entries up to i.
func (m *run) dropThrough(i uint64, epoch uint16) {
	if i >= m.lo {
		lo := min(i+1, m.hi())
		m.shrink(uint32(m.hi() - lo))
		m.lo = lo
		if m.last == m.segment {
			m.loose = 0
		} else if m.loose == 0 {
			m.loose = epoch
		}
	}
}

func (m *run) shrink(n uint32) {
	m.units = uint32(uint64(m.units) * uint64(n) / uint64(m.n))
	m.n = n
}

// truncate removes the entries at and above i.
func (x *index) truncate(i uint64, all *indexes) {
	k := x.find(i)
	if k < len(x.runs) && x.runs[k].lo < i {
		m := &x.runs[k]
		all.sub(m)
		m.dropFrom(i)
		all.add(m)
		k++
	}
	for j := range x.runs[k:] {
		all.sub(&x.runs[k+j])
	}
	x.runs = x.runs[:k]
	if k > 0 {
		x.runs[k-1].cut = true // also if it lost nothing: what follows it is an old record, which it must not be joined over
	}
	x.grow = -1
}

// compact removes the entries up to i, and returns about how many bytes their records take.
func (x *index) compact(i uint64, all *indexes) (bytes int64) {
	bytes = all.live
	k := x.find(i + 1)
	for j := range x.runs[:k] {
		all.sub(&x.runs[j])
	}
	if k < len(x.runs) {
		m := &x.runs[k]
		all.sub(m)
		m.dropThrough(i, all.epoch)
		all.add(m)
	}
	if k > 0 {
		x.runs = slices.Delete(x.runs, 0, k)
		x.grow = max(-1, x.grow-k)
	}
	x.trim(all)
	return bytes - all.live
}

// clear removes all entries.
func (x *index) clear(all *indexes) {
	x.truncate(0, all)
	x.trim(all)
}

// trim gives memory back when the index needs much less than it has.
func (x *index) trim(all *indexes) {
	if n := len(x.runs); cap(x.runs) > 4*n {
		x.resize(x.runs, n, all)
	}
}

// coarsen joins neighbours that lie within a stride.
func (x *index) coarsen(all *indexes) {
	if len(x.runs) == 0 {
		x.trim(all)
		return
	}
	for i := range x.runs {
		all.sub(&x.runs[i])
	}
	kept := x.runs[:1]
	for i := range x.runs[1:] {
		m := x.runs[1+i]
		if a := &kept[len(kept)-1]; all.joins(a, &m) {
			a.join(&m)
		} else {
			kept = append(kept, m)
		}
	}
	for i := range kept {
		all.add(&kept[i])
	}
	x.runs = kept
	if len(kept) < cap(kept) {
		x.resize(kept, len(kept), all)
	}
	x.grow = -1
}

// joins reports whether m may become a part of a, which ends where m begins.
func (all *indexes) joins(a, m *run) bool {
	return !a.cut && a.hi() == m.lo && a.term == m.term && (m.segment > a.last || m.segment == a.last && m.off >= a.end) &&
		all.within(a, m.last, m.end) && uint64(a.n)+uint64(m.n) <= math.MaxUint32 && uint64(a.units)+uint64(m.units) <= math.MaxUint32
}

// sever keeps the last run from growing over what follows it, and from being joined across it. No other run
// can: the entry after each of them is there already, or will be truncated or moved.
func (x *index) sever() {
	if n := len(x.runs); n > 0 {
		x.runs[n-1].cut = true
	}
	x.grow = -1
}

// gap returns the first range [lo, hi) of indexes at or after first that no run holds although a later one
// exists.
func (x *index) gap(first uint64) (lo, hi uint64, ok bool) {
	for i := range x.runs {
		m := &x.runs[i]
		if m.lo > first {
			return first, m.lo, true
		}
		first = max(first, m.hi())
	}
	return 0, 0, false
}
