package wal

import (
	"slices"
)

// This file keeps what the indexes of all groups have in common: the memory that they take, which it bounds, and what is
// needed of each segment, for the cleaner. Both are kept up with each change of a mark, so that nobody has to look at all
// groups to know them: with 10,000 groups that took longer than the work that it was for.
//
// A mark counts for the segment that it begins in: that one has to stay, and no earlier one. With it stay all later ones, as
// segments go in order of their ids. Of the bytes of a mark that spans segments an equal share is taken to be in each.
//
// Invariant: the counts are what a walk over all marks and states would find (TestNeedsAreWhatASurveyWouldFind).

// demand is what is needed of a segment.
type demand struct {
	runs   int   // that begin in it
	loose  int   // those of them of which perhaps no entry is in it
	states int   // last hard states, and last records of where a group's log begins
	bytes  int64 // of all of that, about
}

// indexes is what the indexes of all groups have in common. Owned by the appender, under Log.mu.
type indexes struct {
	live     int64 // bytes of what is needed, of all segments
	segments map[uint32]*demand
	recent   uint32 // the segment that was asked for last
	demand   *demand

	capacity int      // marks of all groups that there is memory for
	stride   int64    // bytes of log that a mark may stand for
	size     int64    // of a segment
	walls    []uint32 // segments that do not follow on the one before, which is missing or damaged; in order

	epoch uint16   // another one since each sweep began; never 0
	round []*Group // that are still to be made coarser
	floor int      // marks that were left when they could not be any coarser
}

func newIndexes(segmentBytes int64) indexes {
	return indexes{segments: map[uint32]*demand{}, epoch: 1, stride: minIndexStride, size: segmentBytes}
}

// of returns what is needed of a segment.
func (all *indexes) of(segment uint32) *demand {
	if all.demand != nil && all.recent == segment {
		return all.demand
	}
	d := all.segments[segment]
	if d == nil {
		d = &demand{}
		all.segments[segment] = d
	}
	all.recent, all.demand = segment, d
	return d
}

// add counts a mark.
func (all *indexes) add(m *run) { all.count(m, 1) }

// sub takes a mark out of the count. It is as it was when it was counted.
func (all *indexes) sub(m *run) { all.count(m, -1) }

func (all *indexes) count(m *run, sign int) {
	d := all.of(m.segment)
	d.runs += sign
	if m.loose != 0 {
		d.loose += sign
	}
	bytes := int64(sign) * m.bytes()
	all.live += bytes
	if m.last != m.segment {
		bytes /= int64(m.last-m.segment) + 1
	}
	d.bytes += bytes
}

// state moves the count of a record that says what a group's state is, from one segment to another. 0 is none.
func (all *indexes) state(from, to uint64, bytes int64) {
	if from == to {
		return
	}
	if from != 0 {
		d := all.of(uint32(from))
		d.states--
		d.bytes -= bytes
		all.live -= bytes
	}
	if to != 0 {
		d := all.of(uint32(to))
		d.states++
		d.bytes += bytes
		all.live += bytes
	}
}

// lowest returns the lowest segment of which something is needed, and what that is; tail, if it is not lower.
func (all *indexes) lowest(tail uint64) (uint64, demand) {
	least := uint32(tail)
	for id, d := range all.segments {
		switch {
		case d.runs == 0 && d.states == 0:
			delete(all.segments, id)
		case id < least:
			least = id
		}
	}
	all.demand = nil // it may have been deleted
	return uint64(least), *all.of(least)
}

// within reports whether a mark that begins like a may end at a place. As long as a stride is less than a segment, marks stay
// within their segments: then it is known exactly which segments are needed.
func (all *indexes) within(a *run, last, end uint32) bool {
	if a.segment == last {
		return int64(end)-int64(a.off) <= all.stride
	}
	if all.stride == minIndexStride || all.stride < all.size || int64(last-a.segment)*all.size+int64(end)-int64(a.off) > all.stride {
		return false
	}
	k, _ := slices.BinarySearch(all.walls, a.segment+1)
	return k == len(all.walls) || all.walls[k] > last
}

// slack is how many marks are put up with where they could not be made fewer the last time.
func (all *indexes) slack() int {
	if all.floor == 0 {
		return 0
	}
	return all.floor + all.floor/4 + 16
}

// beginEpoch tells what happens to marks from now on from what happened before.
func (all *indexes) beginEpoch() {
	if all.epoch++; all.epoch == 0 {
		all.epoch = 1
	}
}

// wall says that a segment does not follow on the one before it, so that no reader gets across.
func (all *indexes) wall(segment uint64) {
	if n := len(all.walls); n == 0 || all.walls[n-1] < uint32(segment) {
		all.walls = append(all.walls, uint32(segment))
	}
}

const (
	// coarsenPiece is how many marks are looked at in one go while the index is made coarser, beside one append.
	coarsenPiece = 64 << 10
	// groupCost is what a group counts for in it.
	groupCost = 4
)

// boundIndex makes the index coarser while it takes more than it should: piece by piece once it gets near its bound, and in
// one go if it is over. A mark per group and run of terms stays. mu is held, or no reader has the log yet.
func (t *table) boundIndex() {
	all := &t.indexes
	limit := int(t.indexBytes / runBytes)
	soft := max(limit/4*3, all.slack())
	for budget := coarsenPiece; len(all.round) > 0 || all.capacity > soft; {
		if len(all.round) == 0 {
			all.round = t.someGroups()
			all.stride = min(2*all.stride, maxIndexStride)
		}
		for len(all.round) > 0 && (budget > 0 || all.capacity > max(limit, soft)) {
			g := all.round[len(all.round)-1]
			all.round = all.round[:len(all.round)-1]
			budget -= groupCost + len(g.index.runs)
			g.mu.Lock()
			g.index.coarsen(all)
			g.mu.Unlock()
		}
		if len(all.round) > 0 {
			break
		}
		all.round = nil
		if all.stride == maxIndexStride {
			all.floor = all.capacity
			soft = max(limit/4*3, all.slack())
		}
		if budget <= 0 && all.capacity <= max(limit, soft) {
			break
		}
	}
	t.stats.indexBytes.Store(uint64(all.capacity) * runBytes)
}
