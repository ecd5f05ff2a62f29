package journal

import (
	"sync/atomic"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// Group is the log of one group, as readers see it. It implements host.GroupLog. Each method looks at one
// state, without a lock.
type Group struct{ state atomic.Pointer[state] }

// HardState implements host.GroupLog.
func (g *Group) HardState() raftpb.HardState { return g.state.Load().hs }

// Snapshot implements host.GroupLog.
func (g *Group) Snapshot() wal.Snapshot { return g.state.Load().start }

// FirstIndex implements host.GroupLog.
func (g *Group) FirstIndex() uint64 { return g.state.Load().start.Index + 1 }

// LastIndex implements host.GroupLog.
func (g *Group) LastIndex() uint64 { return g.state.Load().last() }

// Term implements host.GroupLog.
func (g *Group) Term(i uint64) (uint64, error) {
	s := g.state.Load()
	switch {
	case i < s.start.Index:
		return 0, wal.ErrCompacted
	case i > s.last():
		return 0, wal.ErrUnavailable
	}
	return s.term(i), nil
}

// Entries implements host.GroupLog.
func (g *Group) Entries(lo, hi, maxBytes uint64) ([]raftpb.Entry, error) {
	s := g.state.Load()
	switch {
	case lo >= hi:
		return nil, nil
	case lo <= s.start.Index:
		return nil, wal.ErrCompacted
	case hi > s.last()+1:
		return nil, wal.ErrUnavailable
	}
	from := s.entries[lo-s.start.Index-1 : hi-s.start.Index-1]
	n, bytes := 0, uint64(0)
	for ; n < len(from); n++ {
		if bytes += uint64(from[n].Size()); n > 0 && bytes > maxBytes {
			break
		}
	}
	return append(make([]raftpb.Entry, 0, n), from[:n]...), nil
}

// Recent implements host.GroupLog: everything is in memory.
func (g *Group) Recent(lo, hi, maxBytes uint64) ([]raftpb.Entry, bool) {
	es, err := g.Entries(lo, hi, maxBytes)
	return es, err == nil
}

// Typed implements host.GroupLog.
func (g *Group) Typed(lo, hi uint64) (indexes []uint64) {
	s := g.state.Load()
	for i := max(lo, s.start.Index+1); i < min(hi, s.last()+1); i++ {
		if s.entries[i-s.start.Index-1].Type != raftpb.EntryNormal {
			indexes = append(indexes, i)
		}
	}
	return indexes
}
