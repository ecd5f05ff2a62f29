package wal

import (
	"slices"
	"sort"

	"github.com/millrace/millrace/raft/raftpb"
)

// typed lists a group's entries that have a type, membership changes for example: a caller that opens the log
// finds them without reading it. There are few; each takes 8 bytes.
//
// Invariant: indexes ascends, and has exactly the entries of the log that hold no commands
// (EntryType.HoldsCommands).
type typed struct{ indexes []uint64 }

// put notes an entry. In a log whose first segments were dropped, moved entries come in any order.
func (t *typed) put(i uint64, typ uint8) {
	at, has := slices.BinarySearch(t.indexes, i)
	switch isTyped := !raftpb.EntryType(typ).HoldsCommands(); {
	case isTyped && !has:
		t.indexes = slices.Insert(t.indexes, at, i)
	case !isTyped && has:
		t.indexes = slices.Delete(t.indexes, at, at+1)
	}
}

// truncate removes the entries at and above i.
func (t *typed) truncate(i uint64) {
	if n := len(t.indexes); n > 0 && t.indexes[n-1] >= i {
		t.indexes = t.indexes[:t.position(i)]
	}
}

// compact removes the entries through i.
func (t *typed) compact(i uint64) {
	if len(t.indexes) > 0 && t.indexes[0] <= i {
		t.indexes = slices.Delete(t.indexes, 0, t.position(i+1))
	}
}

func (t *typed) position(i uint64) int {
	return sort.Search(len(t.indexes), func(k int) bool { return t.indexes[k] >= i })
}

// Typed returns the indexes of the entries in [lo, hi) that hold no commands
// (raftpb.EntryType.HoldsCommands), in ascending order. It never blocks and never reads from disk.
func (g *Group) Typed(lo, hi uint64) []uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	t := &g.typed
	return slices.Clone(t.indexes[t.position(lo):max(t.position(lo), t.position(hi))])
}
