package wal

import (
	"fmt"
	"math"
	"sync/atomic"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal/record"
)

// Group is the reading end of one group's log. It may be used by any goroutine, also during Append and
// Sync. It shows what is appended, durable or not.
type Group struct {
	table *table
	id    uint64
	slot  int // in table.list; under table.mu

	// Owned by the appender, under Log.mu.
	after   groupAfter
	hsAt    uint64 // the segment of the last hard state record, 0 if there is none
	startAt uint64 // the segment of the last base or reset record, 0 if there is none
	loose   bool   // the last hard state record is of a version that wrote it apart from the entries of its write
	touched bool   // it was appended to since a flush was captured

	// mu is held for moments only, never during I/O.
	mu      lock.Mutex
	deleted bool // changed under Log.mu too
	hs      raftpb.HardState
	start   raftpb.EntryID // what the entries begin after: the last one compacted, or covered by a snapshot
	last    uint64
	index   index
	cache   recent
	typed   typed
	cuts    uint64   // how often entries were taken back: what was read before and after may not belong together
	stop    bookmark // where the last reader from disk stopped, for the next

	durable atomic.Uint64 // entries up to here survive a power cut; changed under Log.mu
	lowest  uint64        // the lowest last index since a flush was captured while no other was under way; under Log.mu
}

// ID returns the group's number.
func (g *Group) ID() uint64 { return g.id }

// HardState returns the term, vote and commit index last appended.
func (g *Group) HardState() raftpb.HardState {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hs
}

// Snapshot returns the entry after which the log begins: the last compacted entry, or the last that an
// appended Snapshot covers. It is zero if the log begins at index 1.
func (g *Group) Snapshot() Snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Snapshot{Index: g.start.Index, Term: g.start.Term}
}

// FirstIndex returns the index of the first entry that can be read; 1 if nothing was compacted.
func (g *Group) FirstIndex() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.start.Index + 1
}

// LastIndex returns the index of the last entry; FirstIndex-1 if there is none.
func (g *Group) LastIndex() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

// Term returns the term of entry i, from memory. The term of a compacted entry is known only for
// the last one. Entry 0 has term 0.
func (g *Group) Term(i uint64) (uint64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.term(i)
}

// term is Term for callers that hold mu, or that are the appender.
func (g *Group) term(i uint64) (uint64, error) {
	if i == g.start.Index {
		return g.start.Term, nil
	}
	if err := g.missing(i); err != nil {
		return 0, err
	}
	m := g.index.at(i)
	if m == nil {
		return 0, g.hole(i)
	}
	return m.term, nil
}

// hole returns the error for a missing entry between others. Only an Inspection of a damaged log has such
// entries.
func (g *Group) hole(i uint64) error {
	return &CorruptError{File: g.table.dir.path, Group: g.id, Index: i, Reason: "the entry is lost to damage"}
}

// missing returns the error that says why there is no entry i, or nil. mu is held.
func (g *Group) missing(i uint64) error {
	switch {
	case i <= g.start.Index:
		return fmt.Errorf("%w: group %d, index %d, the first is %d", ErrCompacted, g.id, i, g.start.Index+1)
	case i > g.last:
		return fmt.Errorf("%w: group %d, index %d, the last is %d", ErrUnavailable, g.id, i, g.last)
	}
	return nil
}

// truncate removes the entries at and above i. mu is held, or no reader has the log yet; the same holds for
// the methods below.
func (g *Group) truncate(i uint64) {
	if i > g.last {
		return
	}
	g.index.truncate(i, &g.table.indexes)
	g.cache.truncate(i)
	g.typed.truncate(i)
	g.cuts++
	g.durable.Store(min(g.durable.Load(), i-1))
	g.lowest = min(g.lowest, i-1)
	g.updateLast()
}

// begin makes the log begin after id: a base keeps the entries above it, a reset does not. It returns about
// how many bytes became unneeded.
func (g *Group) begin(k record.Kind, id raftpb.EntryID) (freed int64) {
	if k == record.KindReset {
		g.truncate(g.start.Index + 1)
	}
	freed = g.index.compact(id.Index, &g.table.indexes)
	g.cache.compact(id.Index)
	g.typed.compact(id.Index)
	g.start = id
	g.setHardState(g.hs)
	g.updateLast()
	return freed
}

// forget drops all that a group has, because it is deleted. It returns about how many bytes became unneeded.
// mu is held.
func (g *Group) forget() (freed int64) {
	all := &g.table.indexes
	freed = all.live
	g.index.clear(all)
	g.cache.compact(math.MaxUint64 - 1)
	g.typed = typed{}
	g.pinHardState(0)
	g.pinStart(0)
	g.hs, g.start, g.last, g.loose = raftpb.HardState{}, raftpb.EntryID{}, 0, false
	g.durable.Store(0)
	g.lowest = 0 // a flush that was captured before finds that entries were taken back
	g.cuts++
	return freed - all.live
}

// setHardState sets the hard state, with a commit index at or above where the log begins: what was
// compacted, or what a snapshot covers, is committed. So the result does not depend on which of the two
// records was written again last.
func (g *Group) setHardState(hs raftpb.HardState) {
	if hs != (raftpb.HardState{}) {
		hs.Commit = max(hs.Commit, g.start.Index)
	}
	g.hs = hs
}

// place notes where entry i is. It removes the entries above it.
func (g *Group) setPlace(i, term uint64, typ uint8, s spot) {
	g.truncate(i)
	g.index.put(i, term, s, &g.table.indexes)
	g.typed.put(i, typ)
	g.last = i
}

// move notes where entry i is now.
func (g *Group) move(i, term uint64, typ uint8, s spot) {
	g.index.move(i, term, s, &g.table.indexes)
	g.typed.put(i, typ)
	g.updateLast()
}

// pinHardState notes which segment holds the last hard state record. pinStart does the same for the last
// base or reset record. The log's mu is held.
func (g *Group) pinHardState(segment uint64) {
	g.table.indexes.state(g.hsAt, segment, record.Bytes(record.HardStateBytes))
	g.hsAt = segment
}

func (g *Group) pinStart(segment uint64) {
	g.table.indexes.state(g.startAt, segment, record.Bytes(0))
	g.startAt = segment
}

// updateLast brings last up to date.
func (g *Group) updateLast() { g.last = max(g.start.Index, g.index.last()) }
