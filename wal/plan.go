package wal

import (
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal/record"
)

// Planning is the "decide" of Append. It checks each write against the state that the writes before it will
// leave, and finds out which records it takes. It changes nothing but scratch space. After it, an append
// can only fail because of the disk.

// groupAfter is a group as it will be if the current Append succeeds.
type groupAfter struct {
	batch   uint64 // the Append it belongs to
	start   raftpb.EntryID
	last    uint64
	intact  uint64 // entries up to here are those of the log
	hs      raftpb.HardState
	pending []*Write // of this Append, so far
	deleted bool
}

// plan is what one write does and takes.
type plan struct {
	group *Group
	begin record.Kind // kindBase, kindReset, or 0 for neither
	start raftpb.EntryID
	cut   bool // there are entries to truncate
	hard  bool // there is a hard state

	deletes bool // the group

	critical                   bool   // it counts only when it is durable, in any mode
	hardAt, startAt, deletedAt uint64 // the segments that their records went to
}

// batch is the scratch space of one Append. Under Log.mu.
type batch struct {
	number uint64 // of the current Append
	plans  []plan // of its writes, in order
	deaths int    // groups that it deletes
	spots  []spot // of its entries, in order
}

// planWrites plans each write. It returns the bytes of all records, and how many of them are entries. mu is
// held.
func (l *Log) planWrites(writes []Write) (bytes int64, entries int, err error) {
	l.batch.number++
	l.batch.plans, l.batch.spots, l.batch.deaths = l.batch.plans[:0], l.batch.spots[:0], 0
	for i := range writes {
		w := &writes[i]
		p := plan{group: l.Group(w.Group), hard: w.HardState != (raftpb.HardState{})}
		s := p.group.planned(l.batch.number)
		if s.deleted && !w.Delete {
			return 0, 0, &InvalidWriteError{Group: w.Group, Reason: "the group was deleted, and its id is never reused", Err: ErrDeleted}
		}
		if reason := l.planDelete(&p, w, s); reason != "" {
			return 0, 0, invalid(w, reason)
		}
		if p.hard {
			p.critical = w.HardState.Term != s.hs.Term || w.HardState.Vote != s.hs.Vote
			s.hs = w.HardState
		}
		if reason := l.planStart(&p, w, s); reason != "" {
			return 0, 0, invalid(w, reason)
		}
		if reason := planCut(&p, w, s); reason != "" {
			return 0, 0, invalid(w, reason)
		}
		for j := range w.Entries {
			e := &w.Entries[j]
			if reason := rejectEntry(e, w.Entries[0].Index+uint64(j), s); reason != "" {
				return 0, 0, invalid(w, fmt.Sprintf("entry %d of %d (index %d, term %d, %d bytes): %s; the log holds (%d, %d]",
					j+1, len(w.Entries), e.Index, e.Term, len(e.Data), reason, s.start.Index, s.last))
			}
			s.intact = min(s.intact, e.Index-1)
			s.last = e.Index
			entries++
			p.critical = p.critical || e.Type.ChangesMembers()
			bytes += record.Bytes(len(e.Data))
		}
		s.pending = append(s.pending, w)
		bytes += p.bytes()
		l.batch.plans = append(l.batch.plans, p)
	}
	return bytes, entries, nil
}

// bytes returns the space of the records that are not entries.
func (p *plan) bytes() int64 {
	n := int64(p.bodiless()) * record.Bytes(0)
	if p.hard {
		n += record.Bytes(record.HardStateBytes)
	}
	return n
}

// records returns the number of records of a write with this many entries.
func (p *plan) records(entries int) int {
	n := p.bodiless() + entries
	if p.hard {
		n++
	}
	return n
}

// bodiless returns the number of records without a body.
func (p *plan) bodiless() (n int) {
	if p.begin != 0 {
		n++
	}
	if p.cut {
		n++
	}
	if p.deletes {
		n++
	}
	return n
}

// planned returns the group as the current batch has planned it so far.
func (g *Group) planned(batch uint64) *groupAfter {
	if s := &g.after; s.batch != batch {
		*s = groupAfter{batch: batch, start: g.start, last: g.last, intact: g.last, hs: g.hs, pending: s.pending[:0], deleted: g.deleted}
	}
	return &g.after
}

// invalid returns the error for a write that is refused for a reason.
func invalid(w *Write, reason string) error {
	return &InvalidWriteError{Group: w.Group, Reason: reason}
}

// planDelete plans a deletion, which does nothing if the group is deleted already. It returns the reason to
// refuse it, or "".
func (l *Log) planDelete(p *plan, w *Write, s *groupAfter) (reason string) {
	switch {
	case !w.Delete:
		return ""
	case p.hard || w.Snapshot != (Snapshot{}) || w.CompactThrough != 0 || w.TruncateFrom != 0 || len(w.Entries) > 0:
		return "a write that deletes its group may carry nothing else"
	}
	if s.deleted {
		return ""
	}
	p.deletes = true
	l.batch.deaths++
	if dead := int(l.stats.deleted.Load()); dead+l.batch.deaths > l.table.maxDead {
		return fmt.Sprintf("the log remembers %d deleted groups, and cannot remember more than %d", dead, l.table.maxDead)
	}
	p.critical = p.deletes
	*s = groupAfter{batch: s.batch, pending: s.pending[:0], deleted: true}
	return ""
}

// planStart plans a snapshot or a compaction. It returns the reason to refuse it, or "".
func (l *Log) planStart(p *plan, w *Write, s *groupAfter) (reason string) {
	snap, through := w.Snapshot, w.CompactThrough
	switch {
	case snap != (Snapshot{}) && through != 0:
		return fmt.Sprintf("a write may carry a snapshot (index %d) or a compaction (through %d), not both", snap.Index, through)
	case snap.Index == 0 && snap.Term != 0:
		return fmt.Sprintf("a snapshot of term %d needs an index of at least 1", snap.Term)
	case through > s.last:
		return fmt.Sprintf("compaction through index %d, but the last index is %d", through, s.last)
	case max(snap.Index, through) <= s.start.Index:
		return ""
	case through != 0:
		p.begin, p.start = record.KindBase, raftpb.EntryID{Index: through, Term: p.group.termAfter(through)}
	case snap.Index <= s.last && p.group.termAfter(snap.Index) == snap.Term:
		p.begin, p.start = record.KindBase, raftpb.EntryID{Index: snap.Index, Term: snap.Term}
	default:
		p.begin, p.start, p.critical = record.KindReset, raftpb.EntryID{Index: snap.Index, Term: snap.Term}, true
		s.last, s.intact = snap.Index, 0
	}
	s.start = p.start
	s.last = max(s.last, s.start.Index)
	return ""
}

// termAfter returns the term of entry i as the writes so far leave it.
func (g *Group) termAfter(i uint64) uint64 {
	if i > g.after.intact {
		for k := len(g.after.pending) - 1; k >= 0; k-- {
			es := g.after.pending[k].Entries
			if len(es) > 0 && i >= es[0].Index && i <= es[len(es)-1].Index {
				return es[i-es[0].Index].Term
			}
		}
	}
	term, _ := g.term(i) // it is held: the caller compared it with start and last
	return term
}

// planCut plans a truncation. It returns the reason to refuse it, or "".
func planCut(p *plan, w *Write, s *groupAfter) (reason string) {
	switch {
	case w.TruncateFrom == 0 || w.TruncateFrom > s.last:
		return ""
	case w.TruncateFrom <= s.start.Index:
		return fmt.Sprintf("truncation from index %d, but the log begins after %d", w.TruncateFrom, s.start.Index)
	}
	p.cut = true
	s.last = w.TruncateFrom - 1
	s.intact = min(s.intact, s.last)
	return ""
}

// rejectEntry returns the reason to refuse e for a group in state s, where it should have index want, or
// "".
func rejectEntry(e *raftpb.Entry, want uint64, s *groupAfter) string {
	switch {
	case e.Index == 0:
		return "indexes start at 1"
	case e.Index != want:
		return "the entries of one write must be contiguous"
	case e.Index > s.last+1:
		return "it would leave a gap"
	case e.Index <= s.start.Index:
		return "it is compacted"
	case e.Type < 0 || e.Type > 255:
		return "its type does not fit a byte"
	case len(e.Data) > MaxEntryBytes:
		return fmt.Sprintf("its data is larger than %d bytes", MaxEntryBytes)
	}
	return ""
}
