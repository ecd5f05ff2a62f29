package sim

import (
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/sim/property"
)

// Logs that hold an entry with the same index and term are equal through it (thesis §3.5). Checked after each
// event of a host that has changed its log, for the part that has changed.

// checkLog: if two logs hold an entry with the same index and term, they are equal up to it (§3.5). Only the
// part of the log that changed since the last check is read.
func (w *world) checkLog(r *replica, s diagnosis.Status) {
	was := r.watch.status
	if s.LastIndex == was.LastIndex && s.Durable == was.Durable && s.Term == was.Term {
		return
	}
	r.forgetCompacted(s.FirstIndex - 1)
	base, terms := r.watch.base, r.watch.terms
	through := min(base+uint64(len(terms)), s.Durable) // then back to where the log is unchanged
	through = max(through, base)                       // an install has moved the log, and the core does not know yet
	for through > base && r.logTerm(through) != terms[through-base-1] {
		through--
	}
	terms = terms[:through-base]
	for through < s.Durable {
		entries, err := r.group.Log(through+1, s.Durable+1, 1<<20)
		if r.life.isMoved && r.life.excusesMove(err) {
			break // it is looked at when the directory is back, and the log has changed again
		}
		if err != nil {
			w.breaks(property.LogMatching, "%s cannot read entry %d of its log, durable through %d: %v", r.name, through+1, s.Durable, err)
		}
		for _, e := range entries {
			if e.Sum != 0 && e.Sum != crcjoin.Sum(e.Data) {
				w.breaks(property.LogMatching, "%s carries the sum %08x with entry %d@%d, whose data has another", r.name, e.Sum, e.Index, e.Term)
			}
			c := content{typ: e.Type, term: e.Term, hash: hashOf(e.Data), command: string(e.Data)}
			r.life.w.packing.mayHold(r, &e)
			at := position{e.Index, e.Term}
			seen, ok := r.ghost.entries[at]
			switch {
			case through > base:
				c.previous = terms[through-base-1]
			case base > 0:
				c.previous = unknownTerm // it is compacted; before an install another one may have been there
			}
			if ok && c.previous == unknownTerm {
				c.previous = seen.previous
			} else if ok && seen.previous == unknownTerm {
				seen.previous = c.previous
			}
			if ok && seen != c {
				w.breaks(property.LogMatching, "logs do not match at index %d, term %d: %s has %q after term %d, another had %q after term %d",
					e.Index, e.Term, r.name, c.command, c.previous, seen.command, seen.previous)
			}
			r.ghost.entries[at] = c
			r.recordVersion(&e)
			if skipped, skips := skippedBy(&e); skips {
				r.ghost.orders[at] = skipped
			}
			terms = append(terms, e.Term)
			through++
		}
	}
	r.watch.terms = terms
}

// forgetCompacted forgets the terms of entries that are not in the log any more.
func (r *replica) forgetCompacted(through uint64) {
	if gone := through - r.watch.base; through > r.watch.base {
		r.watch.base, r.watch.terms = through, r.watch.terms[min(gone, uint64(len(r.watch.terms))):]
	}
}

func (r *replica) logTerm(index uint64) uint64 {
	entries, err := r.group.Log(index, index+1, 1)
	if err != nil {
		return 0
	}
	return entries[0].Term
}
