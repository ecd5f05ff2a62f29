package wal

import (
	"errors"
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
)

// Cleaning gives back the segments that no group needs any more, oldest first. A group needs a segment that holds one
// of its entries, or the last record of its hard state or of where its log begins. Records of the latter two kinds are
// small and are written again when they are in the way; so are the entries of a laggard, that would pin the disk for
// everyone, as long as that is cheap: little of the oldest segment is needed, or less than half of the whole log. What is
// moved into new segments is not moved again before somebody appends: moving cannot be its own reason.
//
// The order that keeps a crash harmless:
//
//	write again what is needed ── front record ── sync ── take the file away, one segment at a time, each durable
//
// What is written again stands outside of the writes of groups: it never lies between their records, since an append is
// encoded as a whole. A write whose beginning was in a segment that is gone was whole, or voided, before anything was cleaned.
//
// A front says that segments before it may be missing; without one, a missing segment is corruption. What was written
// again is the same as what it replaces, so a crash in between leaves both or either.
//
// Rejected: a file of what is needed (a manifest: one more thing to keep in step), and moving entries within their order
// (a log whose laggards must not be behind anything would be copied whole).

// Looking for what to clean goes through the whole index. So compactions are a reason to look only when together they let go
// of a part of a segment; a full tail, or an append without room, is a reason at once. Measured: with 64 groups that
// compact in turn, looking took as long as appending.

// surveyShare is the part of a segment that compactions have to free: one in so many.
const surveyShare = 16

// moveBytes bounds the entries that one piece of work moves.
const moveBytes = 1 << 20

// survey is what is needed of the log.
type survey struct {
	first, tail *segment
	needed      uint64 // the lowest segment that somebody needs
	oldest      int64  // bytes of records that are needed of that segment
	live        int64  // of all
	used        int64  // of all segments
	goal        uint64 // segments from here on were begun since the last append that gave a reason to clean
}

// clean does one piece of cleaning, if there is any to do.
func (l *Log) clean() (more bool) {
	if first := l.firstSegment(); first != nil && first.id < l.frontNow() {
		if err := l.retire(first); err != nil {
			_ = l.fail("retirement", first, 0, err) // the next Append or Sync returns it
			return false
		}
		l.stats.dropped.Add(1)
		return true
	}
	if !l.cleanDue.Swap(false) {
		return false
	}
	v := l.survey()
	var done bool
	var err error
	switch {
	case v.first.id < v.needed:
		done, err = true, l.advanceFront(v.needed)
	case v.pays(l.opts.SegmentBytes):
		done, err = l.moveOut(v.needed)
	}
	if err != nil {
		if !errors.Is(err, ErrDiskFailed) && !errors.Is(err, ErrClosed) {
			l.opts.Logger.Warn("wal: could not free a segment", "segment", v.needed, "err", err)
		}
		return false // until there is a new reason to look
	}
	if done {
		l.cleanDue.Store(true)
	}
	return done
}

// pays reports whether the oldest segment should be emptied. Two segments are always there, and do not count.
func (v *survey) pays(segmentBytes int64) bool {
	return v.needed < v.goal && (v.oldest <= segmentBytes/8 || 2*v.live <= v.used-2*segmentBytes)
}

func (l *Log) frontNow() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.front
}

// firstSegment returns the oldest segment, or nil if there is none but the tail.
func (l *Log) firstSegment() *segment {
	l.mu.Lock()
	tail := l.tail
	l.mu.Unlock()
	l.tableMu.RLock()
	defer l.tableMu.RUnlock()
	var first *segment
	for _, s := range l.segments {
		if s != tail && (first == nil || s.id < first.id) {
			first = s
		}
	}
	return first
}

// survey looks at all groups. What they need may have become less by the time it returns, and never more, except of the
// tail and of what follows it. So the groups are those of the moment at which the tail is looked at: one that appeared
// between the two could have its first records in a segment before that tail.
func (l *Log) survey() survey {
	l.mu.Lock()
	groups := l.allGroups()
	v := survey{tail: l.tail, first: l.tail, needed: l.tail.id, goal: l.goal}
	bytes := map[uint64]int64{}
	need := func(segment uint64, n int64) {
		bytes[segment] += n
		v.live += n
		v.needed = min(v.needed, segment)
	}
	for _, g := range groups {
		if g.hsAt != 0 {
			need(g.hsAt, recordBytes(hardStateBytes))
		}
		if g.startAt != 0 {
			need(g.startAt, recordBytes(0))
		}
	}
	l.tableMu.RLock()
	for _, s := range l.segments {
		if s.id < v.first.id {
			v.first = s
		}
		v.used += s.size
	}
	l.tableMu.RUnlock()
	l.mu.Unlock()
	for _, g := range groups {
		g.mu.RLock()
		g.index.eachSegment(need)
		g.mu.RUnlock()
	}
	v.oldest = bytes[v.needed]
	return v
}

// advanceFront makes it durable that the segments before front are not needed.
func (l *Log) advanceFront(front uint64) error {
	err := l.appendRecords(func() []int64 { return []int64{recordBytes(0)} }, func() error {
		_, err := l.put(header{kind: kindFront, index: front}, nil)
		return err
	})
	if err != nil {
		return err
	}
	if err := l.syncNow(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.front = max(l.front, front)
	return nil
}

// moveOut writes again a piece of what is needed of a segment. It reports false if there is nothing.
func (l *Log) moveOut(segment uint64) (moved bool, err error) {
	for _, g := range l.allGroups() {
		g.mu.RLock()
		m, ok := g.index.first(segment)
		g.mu.RUnlock()
		if !ok {
			continue
		}
		entries, err := g.Entries(m.lo, m.hi(), moveBytes)
		if err != nil {
			return false, err // perhaps ErrCompacted, which brings a new reason to look
		}
		return true, l.moveEntries(g, segment, entries)
	}
	return l.moveStates(segment)
}

// first returns the first mark that lies in a segment.
func (x *index) first(segment uint64) (mark, bool) {
	for i := range x.marks {
		if uint64(x.marks[i].segment) == segment {
			return x.marks[i], true
		}
	}
	return mark{}, false
}

// moveEntries writes again those of the entries that are still in the segment.
func (l *Log) moveEntries(g *Group, segment uint64, entries []raftpb.Entry) error {
	gone := func(e *raftpb.Entry) bool { // compacted or replaced since it was read
		m := g.index.at(e.Index)
		return m == nil || uint64(m.segment) != segment
	}
	sizes := func() (sizes []int64) {
		for i := range entries {
			if !gone(&entries[i]) {
				sizes = append(sizes, recordBytes(len(entries[i].Data)))
			}
		}
		return sizes
	}
	return l.appendRecords(sizes, func() error {
		moved := make([]spot, len(entries))
		for i := range entries {
			e := &entries[i]
			if gone(e) {
				continue
			}
			s, err := l.put(header{kind: kindMoved, typ: uint8(e.Type), group: g.id, index: e.Index, term: e.Term}, e.Data)
			if err != nil {
				return err
			}
			moved[i] = s
		}
		if err := l.flush(); err != nil { // before readers are sent there
			return err
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		marks := cap(g.index.marks)
		for i, s := range moved {
			if s != (spot{}) {
				g.move(entries[i].Index, entries[i].Term, s, l.stride)
				l.stats.movedEntries.Add(1)
			}
		}
		l.marks += cap(g.index.marks) - marks
		return nil
	})
}

// moveStates writes again the hard states and the beginnings of logs that are recorded in the segment.
func (l *Log) moveStates(segment uint64) (moved bool, err error) {
	groups := l.allGroups()
	sizes := func() (sizes []int64) {
		for _, g := range groups {
			if g.startAt == segment {
				sizes = append(sizes, recordBytes(0))
			}
			if g.hsAt == segment {
				sizes = append(sizes, recordBytes(hardStateBytes))
			}
		}
		return sizes
	}
	err = l.appendRecords(sizes, func() (err error) {
		for _, g := range groups {
			moved = moved || g.startAt == segment || g.hsAt == segment
			if g.startAt == segment {
				if g.startAt, err = l.putStart(g.id, kindBase, g.start, oneRecord()); err != nil {
					return err
				}
			}
			if g.hsAt == segment {
				if g.hsAt, err = l.putHardState(g.id, g.hs, oneRecord()); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return moved, err
}

// appendRecords is Append for records of the log's own: those that encode puts, which have the sizes. Both are called with mu
// held, so that nothing changes between the last call of sizes and encode. It may take the reserve, as it frees more than it takes.
func (l *Log) appendRecords(sizes func() []int64, encode func() error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.unusable(); err != nil {
		return err
	}
	for {
		missing := l.lackOf(true, slices.Values(sizes()))
		if missing == (lack{}) {
			break
		}
		if err := l.waitFor(missing); err != nil {
			return err
		}
		if err := l.unusable(); err != nil {
			return err
		}
	}
	if err := encode(); err != nil {
		return err
	}
	return l.flush()
}
