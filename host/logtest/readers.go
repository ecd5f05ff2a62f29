package logtest

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// A history for concurrent readers. The write of each term replaces the last entries of the term before and
// adds some, with a commit index before them. So the index of a term's first entry is known, terms follow one
// another without a gap, and a reader that sees half a write or entries of two moments sees what cannot be.
const (
	readTail    = 8   // entries that a write replaces, less one
	readTerms   = 200 // writes of each group
	readGroups  = 2
	readersEach = 2
)

// readHistory says which entries the write of each term has: [from, end).
type readHistory struct{ from, end [readTerms + 1]uint64 }

func newReadHistory() *readHistory {
	h := &readHistory{}
	h.end[0] = 1
	for term := uint64(1); term <= readTerms; term++ {
		h.from[term] = max(h.end[term-1], readTail) - readTail + 1
		h.end[term] = max(h.end[term-1], h.from[term]) + 1 + term%3
	}
	return h
}

// readOnce reads a group once, in every way, and returns what is wrong, or "".
//
// What was asked first is older. So the hard state bounds what is asked after it: the log has at least the
// entries of that term's write.
func (h *readHistory) readOnce(g host.GroupLog) string {
	hs := g.HardState()
	last := g.LastIndex()
	if last < h.end[hs.Term]-1 {
		return fmt.Sprintf("the hard state is of term %d, whose write ends with entry %d, and after that the last entry is %d: half a write", hs.Term, h.end[hs.Term]-1, last)
	}
	if term, err := g.Term(last); last > 0 && !errors.Is(err, wal.ErrCompacted) && (err != nil || term < hs.Term) {
		return fmt.Sprintf("the hard state is of term %d, and after that the last entry, %d, is of term %d (%v): half a write", hs.Term, last, term, err)
	}
	last = g.LastIndex()
	if term, err := g.Term(last); err == nil && last > 0 {
		if hs := g.HardState(); hs.Term < term {
			return fmt.Sprintf("entry %d is of term %d, and after that the hard state is of term %d: half a write", last, term, hs.Term)
		}
	}
	first := g.FirstIndex()
	if snap := g.Snapshot(); snap.Index+1 < first {
		return fmt.Sprintf("the first index is %d, and after that the log begins after %d", first, snap.Index)
	}
	for _, recent := range []bool{true, false} {
		lo, hi := g.FirstIndex(), g.LastIndex()+1
		if hi <= lo {
			continue
		}
		lo = max(lo, hi-min(hi, 3*readTail)) // where the log changes
		var es []raftpb.Entry
		var err error
		ok := true
		if recent {
			es, ok = g.Recent(lo, hi, 1<<20)
		} else {
			es, err = g.Entries(lo, hi, 1<<20)
		}
		switch {
		case errors.Is(err, wal.ErrCompacted) || !ok:
			continue
		case err != nil:
			return fmt.Sprintf("read of [%d, %d): %v", lo, hi, err)
		}
		if why := h.oneMoment(es, lo); why != "" {
			return why
		}
	}
	return ""
}

// oneMoment returns why entries that were read from lo on cannot be of one moment, or "".
func (h *readHistory) oneMoment(es []raftpb.Entry, lo uint64) string {
	for i := range es {
		e := &es[i]
		want := entry(lo+uint64(i), e.Term, len(e.Data))
		switch {
		case !same(e, &want) || e.Term == 0 || e.Term > readTerms || e.Index < h.from[e.Term] || e.Index >= h.end[e.Term]:
			return fmt.Sprintf("entry %d is (index %d, term %d, type %d, %d bytes), and is not what was written", lo+uint64(i), e.Index, e.Term, e.Type, len(e.Data))
		case i == 0 || e.Term == es[i-1].Term:
		case e.Term != es[i-1].Term+1 || e.Index != h.from[e.Term]:
			return fmt.Sprintf("entry %d is of term %d and entry %d before it of term %d; they are of two moments", e.Index, e.Term, e.Index-1, es[i-1].Term)
		}
	}
	return ""
}
