package journal

import (
	"fmt"
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// state is one group at one moment: entries[i] has index start.Index+1+i. A state that readers have is never
// changed. Appending may use spare capacity of the array that it shares with the state before, which readers
// do not see; everything else makes another array.
type state struct {
	hs      raftpb.HardState
	start   wal.Snapshot
	entries []raftpb.Entry
	bytes   int64 // of the entries, with overhead
	deleted bool

	kept uint64 // the last entry that the last write has left as it was; 0: it has left none
}

func (s *state) last() uint64 { return s.start.Index + uint64(len(s.entries)) }

// term returns the term of entry i, which the group holds or begins after.
func (s *state) term(i uint64) uint64 {
	if i == s.start.Index {
		return s.start.Term
	}
	return s.entries[i-s.start.Index-1].Term
}

// after returns the group after a write, or the reason to refuse it.
func (s state) after(w wal.Write) (next state, reason string) {
	switch {
	case w.Delete && carriesMore(&w):
		return s, "a write that deletes its group may carry nothing else"
	case w.Delete:
		return state{deleted: true}, ""
	case s.deleted:
		return s, reasonDeleted
	}
	s.kept = s.last()
	if w.HardState != (raftpb.HardState{}) {
		s.hs = w.HardState
	}
	if reason := s.begin(w.Snapshot, w.CompactThrough); reason != "" {
		return s, reason
	}
	if s.hs != (raftpb.HardState{}) { // what was compacted is committed
		s.hs.Commit = max(s.hs.Commit, s.start.Index)
	}
	if w.TruncateFrom != 0 && w.TruncateFrom <= s.last() {
		if w.TruncateFrom <= s.start.Index {
			return s, fmt.Sprintf("truncation from index %d, but the log begins after %d", w.TruncateFrom, s.start.Index)
		}
		s.cut(w.TruncateFrom)
	}
	if reason := s.reject(w.Entries); reason != "" {
		return s, reason
	}
	if len(w.Entries) > 0 {
		s.cut(w.Entries[0].Index)
		s.entries = append(s.entries, w.Entries...)
		s.bytes += bytesOf(w.Entries)
	}
	return s, ""
}

const reasonDeleted = "the group was deleted, and its id is never reused"

func carriesMore(w *wal.Write) bool {
	return w.HardState != (raftpb.HardState{}) || w.Snapshot != (wal.Snapshot{}) || w.CompactThrough != 0 || w.TruncateFrom != 0 || len(w.Entries) > 0
}

// begin makes the log begin after a snapshot, or after what is compacted.
func (s *state) begin(snap wal.Snapshot, through uint64) (reason string) {
	switch {
	case snap != (wal.Snapshot{}) && through != 0:
		return fmt.Sprintf("a write may carry a snapshot (index %d) or a compaction (through %d), not both", snap.Index, through)
	case snap.Index == 0 && snap.Term != 0:
		return fmt.Sprintf("a snapshot of term %d needs an index of at least 1", snap.Term)
	case through > s.last():
		return fmt.Sprintf("compaction through index %d, but the last index is %d", through, s.last())
	case max(snap.Index, through) <= s.start.Index:
		return ""
	case through != 0:
		snap = wal.Snapshot{Index: through, Term: s.term(through)}
	}
	if snap.Index <= s.last() && s.term(snap.Index) == snap.Term {
		dropped := snap.Index - s.start.Index
		s.bytes -= bytesOf(s.entries[:dropped])
		s.entries = slices.Clone(s.entries[dropped:]) // the array of before can go
	} else {
		s.entries, s.bytes, s.kept = nil, 0, 0
	}
	s.start = snap
	return ""
}

// cut drops the entries at and above an index. What is appended next gets another array, if any are dropped.
func (s *state) cut(from uint64) {
	if from > s.last() {
		return
	}
	keep := from - s.start.Index - 1
	s.kept = min(s.kept, from-1)
	s.bytes -= bytesOf(s.entries[keep:])
	s.entries = s.entries[:keep:keep]
}

// reject returns the reason to refuse entries, or "".
func (s *state) reject(entries []raftpb.Entry) string {
	for i := range entries {
		e, want := &entries[i], entries[0].Index+uint64(i)
		why := ""
		switch {
		case e.Index == 0:
			why = "indexes start at 1"
		case e.Index != want:
			why = "the entries of one write must be contiguous"
		case i == 0 && e.Index > s.last()+1:
			why = "it would leave a gap"
		case e.Index <= s.start.Index:
			why = "it is compacted"
		case len(e.Data) > wal.MaxEntryBytes:
			why = fmt.Sprintf("its data is larger than %d bytes", wal.MaxEntryBytes)
		}
		if why != "" {
			return fmt.Sprintf("entry %d of %d (index %d, term %d, %d bytes): %s; the log holds (%d, %d]", i+1, len(entries), e.Index, e.Term, len(e.Data), why, s.start.Index, s.last())
		}
	}
	return ""
}

// change returns what a write has done.
func change(w wal.Write, before, after *state) Change {
	c := Change{
		Write: w, Before: Extent{before.start.Index, before.last()}, After: Head{after.hs, after.start, after.deleted},
	}
	if c.Kept.Start = max(before.start.Index, after.start.Index); after.kept > c.Kept.Start {
		c.Kept.Last = after.kept
	} else {
		c.Kept.Last = c.Kept.Start // nothing
	}
	return c
}

func bytesOf(entries []raftpb.Entry) (n int64) {
	for i := range entries {
		n += int64(len(entries[i].Data)) + entryOverhead
	}
	return n
}
