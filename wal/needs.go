package wal

import (
	"slices"
)

// This file counts what the indexes of all groups have in common: the memory that they take, which it
// bounds, and what is needed of each segment, for the cleaner. Each change of a run updates both counts, so
// they are known without looking at all groups. With 10,000 groups that look took longer than the work that
// it prepared.
//
// A run counts for the segment in which it begins: that segment has to stay, and with it all later ones,
// since segments go in order of their ids. If a run spans segments, each is assumed to hold an equal share
// of its bytes.
//
// Invariant: the counts are what a walk over all runs and states would find (TestTwinOfManyGroups).

// demand is what is needed of a segment.
type demand struct {
	runs   int   // that begin in it
	loose  int   // those of them of which perhaps no entry is in it
	states int   // last hard states, and last records of where a group's log begins
	bytes  int64 // of all of that, about
}

// indexes is what the indexes of all groups have in common. The appender owns it, under Log.mu.
type indexes struct {
	live     int64 // bytes of what is needed, of all segments
	segments map[uint32]*demand
	recent   uint32 // the segment that was asked for last
	demand   *demand

	capacity    int      // runs of all groups that there is memory for
	indexStride int64    // bytes of log that a run may span
	size        int64    // of a segment
	walls       []uint32 // segments that do not follow on the one before, which is missing or damaged; in order

	epoch uint16   // another one since each sweep began; never 0
	round []*Group // that are still to be made coarser
	floor int      // runs that were left when the index could not get any coarser
}

func newIndexes(segmentBytes int64) indexes {
	return indexes{segments: map[uint32]*demand{}, epoch: 1, indexStride: minIndexStride, size: segmentBytes}
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

// add counts a run.
func (all *indexes) add(m *run) { all.count(m, 1) }

// sub takes a run out of the count. The run is as it was when it was counted.
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

// state moves the count of a record of a group's state from one segment to another. 0 is none.
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

// lowest returns the lowest segment of which something is needed, and its demand. If there is none below
// tail, it returns tail.
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

// within reports whether a run that begins like a may end at a place. While the stride is less than a
// segment, runs stay within their segments: then it is known exactly which segments are needed.
func (all *indexes) within(a *run, last, end uint32) bool {
	if a.segment == last {
		return int64(end)-int64(a.off) <= all.indexStride
	}
	if all.indexStride == minIndexStride || all.indexStride < all.size || int64(last-a.segment)*all.size+int64(end)-int64(a.off) > all.indexStride {
		return false
	}
	k, _ := slices.BinarySearch(all.walls, a.segment+1)
	return k == len(all.walls) || all.walls[k] > last
}

// slack returns how many runs are tolerated if they could not be made fewer the last time.
func (all *indexes) slack() int {
	if all.floor == 0 {
		return 0
	}
	return all.floor + all.floor/4 + 16
}

// beginEpoch separates what happens to runs from now on from what happened before.
func (all *indexes) beginEpoch() {
	if all.epoch++; all.epoch == 0 {
		all.epoch = 1
	}
}

// wall notes that a segment does not follow the one before it, so that no reader gets across.
func (all *indexes) wall(segment uint64) {
	if n := len(all.walls); n == 0 || all.walls[n-1] < uint32(segment) {
		all.walls = append(all.walls, uint32(segment))
	}
}

const (
	// coarsenPiece is how many runs are looked at beside one append while the index is made coarser.
	coarsenPiece = 64 << 10
	// groupCost is how many runs a group itself counts for.
	groupCost = 4
)

// boundIndex makes the index coarser when it takes too much memory. Above three quarters of the bound, one
// call looks at about coarsenPiece runs, in whole groups. Above the bound, one call goes on until the index
// is within it. If that could not be reached the last time, slack counts where it is larger. One run per
// group and sequence of terms remains. The caller holds mu, or no reader has the log yet.
func (t *table) boundIndex() {
	all := &t.indexes
	limit := int(t.indexBytes / runBytes)
	soft := max(limit/4*3, all.slack())
	for budget := coarsenPiece; len(all.round) > 0 || all.capacity > soft; {
		if len(all.round) == 0 {
			all.round = t.someGroups()
			all.indexStride = min(2*all.indexStride, maxIndexStride)
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
		if all.indexStride == maxIndexStride {
			all.floor = all.capacity
			soft = max(limit/4*3, all.slack())
		}
		if budget <= 0 && all.capacity <= max(limit, soft) {
			break
		}
	}
	t.stats.indexBytes.Store(uint64(all.capacity) * runBytes)
}
