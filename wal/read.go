package wal

import (
	"bytes"
	"errors"
	"slices"

	"github.com/millrace/millrace/internal/arena"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal/record"
)

// Recent entries are read from the cache, older ones by a walk over the records from the beginning of a run
// of the index, through a window of the file. No lock is held while the disk works, so what was looked up
// may be elsewhere by then: its segment was dropped after it was moved, and the file may hold another
// segment already. A dropped segment is closed before its file is reused, so the reader finds it closed
// and looks up once more. If entries are taken back meanwhile, what was read before does not belong
// together with what would be read next, and the reader starts over.
//
// Where the index is coarse, a run begins far before most of its entries. So a group remembers where its
// last reader stopped. A reader that continues there, as a peer that catches up does, reads each segment
// once.

// entryBytes returns what an entry counts for against a limit of Entries: never less than raftpb's encoding
// of it.
func entryBytes(length int) uint64 { return uint64(length) + 32 }

// errDropped is the error of a reader whose segment is gone.
var errDropped = errors.New("wal: segment was dropped")

// Entries returns the entries [lo, hi), or as many of them from lo on as maxBytes allows, but at least one.
// What is not in the cache is read from disk; the error is ErrCorrupt if that is not what was written. Each
// entry's Data is an array of its own, or the one that was appended. Callers must not change it.
func (g *Group) Entries(lo, hi, maxBytes uint64) ([]raftpb.Entry, error) {
	if lo >= hi {
		return nil, nil
	}
	r := reading{group: g, next: lo, hi: hi, maxBytes: maxBytes, left: maxBytes}
	for tries := 0; !r.done; tries++ {
		m, from, err := r.lookup(tries > 0)
		if err != nil {
			return nil, err
		}
		if m.n == 0 {
			continue // it was in the cache, or has to be looked up again
		}
		err = r.walk(m, from)
		if errors.Is(err, errDropped) && g.table.closed.Load() {
			err = ErrClosed
		}
		if err != nil && !errors.Is(err, errDropped) {
			return nil, err
		}
	}
	return r.found, nil
}

// Recent is Entries without the disk. It returns the entries [lo, hi) from memory: from lo on as many as
// maxBytes allows and the cache has, but at least one. It reports false if the cache does not have the
// first, whatever the reason: Entries finds it on disk, or says why it is nowhere. Recent does no I/O and
// waits for none, and copies at most about 1 MiB beyond the first entry. The entries are as in Entries.
func (g *Group) Recent(lo, hi, maxBytes uint64) (entries []raftpb.Entry, ok bool) {
	if lo >= hi {
		return nil, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.missing(lo) != nil || g.missing(hi-1) != nil {
		return nil, false
	}
	r := reading{group: g, next: lo, hi: hi, maxBytes: maxBytes, left: maxBytes}
	ok = r.copyCached()
	return r.found, ok
}

// Borrow is Recent for a reader that looks at the entries for a while, and appends them to into. Data of
// commands that Recent would copy is in the loan, and valid until that ends. Everything else is as in Recent.
func (g *Group) Borrow(lo, hi, maxBytes uint64, loan *arena.Loan, into []raftpb.Entry) (entries []raftpb.Entry, ok bool) {
	if lo >= hi {
		return into, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.missing(lo) != nil || g.missing(hi-1) != nil {
		return into, false
	}
	r := reading{group: g, next: lo, hi: hi, found: into, before: len(into), maxBytes: maxBytes, left: maxBytes, loan: loan}
	ok = r.copyCached()
	return r.found, ok
}

// reading is one call of Entries, Recent or Borrow under way.
type reading struct {
	group  *Group
	next   uint64 // the entry wanted next
	hi     uint64
	found  []raftpb.Entry
	before int // entries of found that are of other calls
	done   bool
	cuts   uint64 // of the group, when it began

	maxBytes, left uint64
	loan           *arena.Loan // nil: what is copied gets arrays of its own
}

// wants reports whether the limit allows an entry with this many bytes of data. If not, it sets done.
func (r *reading) wants(length int) bool {
	r.done = len(r.found) > r.before && entryBytes(length) > r.left
	return !r.done
}

// take adds a wanted entry. It sets done if it was the last.
func (r *reading) take(e raftpb.Entry) {
	r.left -= min(r.left, entryBytes(len(e.Data)))
	r.found = append(r.found, e)
	r.next++
	r.done = r.next == r.hi
}

// bookmark is where a reader may begin: in a run that covers it, no entry of the group at or above index
// is before it.
type bookmark struct {
	index   uint64
	segment uint32
	off     uint32
	seed    uint32 // the chain there
	cuts    uint64 // of the group, when it was so
}

// lookup takes the next entries from the cache, or returns the run to read them from, and where to begin.
func (r *reading) lookup(started bool) (m run, from bookmark, err error) {
	g := r.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if started && r.cuts != g.cuts {
		r.next -= uint64(len(r.found))
		r.left, r.found = r.maxBytes, nil
	}
	r.cuts = g.cuts
	if err := g.missing(r.next); err != nil {
		return run{}, bookmark{}, err
	}
	if err := g.missing(r.hi - 1); err != nil {
		return run{}, bookmark{}, err
	}
	if r.copyCached() {
		return run{}, bookmark{}, nil
	}
	at := g.index.at(r.next)
	if at == nil {
		return run{}, bookmark{}, g.hole(r.next)
	}
	m, from = *at, bookmark{index: at.lo, segment: at.segment, off: at.off, seed: at.seed}
	if s := &g.stop; s.cuts == g.cuts && s.index > m.lo && s.index <= r.next && m.covers(uint64(s.segment), int64(s.off)) {
		from = *s
	}
	if k := g.cache.find(r.next); k < len(g.cache.runs) {
		m.dropFrom(g.cache.runs[k].lo) // those need not be read
	}
	return m, from, nil
}

const (
	// maxWarmBytes bounds what is copied from the cache in one go, because an appender may wait for the
	// group's lock meanwhile.
	maxWarmBytes = 1 << 20
	// maxWarmSlots is the capacity of a result before the size of its entries is known: 48 KiB.
	maxWarmSlots = 1 << 10
)

// copyCached takes the next entries from the cache. It reports whether the first was there. The group's mu
// is held.
func (r *reading) copyCached() bool {
	runs := r.group.cache.runs[r.group.cache.find(r.next):]
	if len(runs) == 0 || runs[0].lo > r.next {
		return false
	}
	r.found = slices.Grow(r.found, int(min(r.hi-r.next, r.left/entryBytes(0)+1, maxWarmSlots)))
	left := maxWarmBytes
	stop := &r.group.cache.stop
	for k := 0; k < len(runs) && runs[k].lo <= r.next; k++ {
		w := stop.resume(walkRun(&r.group.table.cache, &runs[k]), &runs[k], r.next)
		for w.step() && !r.done && left > 0 {
			if w.id.Index < r.next {
				continue
			}
			if r.wants(w.length) {
				left -= int(entryBytes(w.length))
				r.take(w.entry(r.loan))
				stop.set(&w, &runs[k])
			}
		}
	}
	return true
}

// readPlace is a place in a cached run, behind an entry. The reader that applies a group goes from one end of
// the log to the other, a few entries at a time. With the place it does not walk through the run for each.
type readPlace struct {
	run   uint64 // cachedRun.at, of which no two are the same
	index uint64 // of the entry
	pos   uint64 // of the ring, behind it
	large int    // data in cachedRun.large through it
}

// set moves the place behind the walker's entry.
func (p *readPlace) set(w *walker, r *cachedRun) {
	p.run, p.index, p.pos, p.large = r.at, w.id.Index, w.pos, len(r.large)-len(w.large)
	if w.length >= largeBytes {
		p.large++
	}
}

// resume moves a walker at the beginning of a run to the place, if that is in the run and before the entry
// that is wanted next. What is before it stays as it is while the group has the run: a run gets and loses
// entries at its end.
func (p *readPlace) resume(w walker, r *cachedRun, next uint64) walker {
	if p.run == r.at && p.index >= r.lo && p.index < min(next, r.hi()) {
		w.pos, w.left, w.id.Index, w.large = p.pos, uint16(r.hi()-1-p.index), p.index, r.large[p.large:]
	}
	return w
}

// walk reads the wanted entries of m from disk, beginning at a place.
func (r *reading) walk(m run, from bookmark) error {
	g := r.group
	w := recordWalker{table: g.table, seg: g.table.segment(uint64(from.segment)), off: int64(from.off), chain: from.seed, last: m.last, end: int64(m.end)}
	if w.seg == nil {
		return errDropped
	}
	for r.next < m.hi() && !r.done {
		h, why, err := w.header()
		if err != nil {
			return err
		}
		if why == record.FlawNone && g.holds(h, m.term, r.next) {
			if !r.wants(int(h.Length)) {
				break // the next reader wants it, and reads it
			}
			var body []byte
			if body, why, err = w.body(h); err != nil {
				return err
			}
			if why == record.FlawNone {
				r.take(raftpb.Entry{Term: h.Term, Index: h.Index, Type: raftpb.EntryType(h.Type), Data: bytes.Clone(body)})
			}
		}
		if why != record.FlawNone {
			return &CorruptError{File: w.seg.path, Offset: w.off, Group: g.id, Index: r.next, Through: m.hi() - 1, Reason: string(why)}
		}
		w.skip(h)
	}
	g.mu.Lock()
	g.stop = bookmark{index: r.next, segment: uint32(w.seg.id), off: uint32(w.off), seed: w.chain, cuts: r.cuts}
	g.mu.Unlock()
	return nil
}

// holds reports whether the record of h is the entry i of the group.
func (g *Group) holds(h record.Header, term, i uint64) bool {
	return (h.Kind == record.KindEntry || h.Kind == record.KindMoved) && h.Group == g.id && h.Index == i && h.Term == term
}
