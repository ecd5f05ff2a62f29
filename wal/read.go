package wal

import (
	"bytes"
	"errors"

	"github.com/millrace/millrace/raft/raftpb"
)

// Reading entries: the recent ones from the cache, older ones by a pread for each mark of the index. No lock is held
// while the disk works, so what was looked up may be elsewhere by then: its segment was dropped after it was moved, and
// its file perhaps holds another segment already. A segment that is dropped is closed before its file is used again, so
// a reader finds it closed and looks up once more. Should entries be taken back meanwhile, what was read before does
// not belong together with what would be read next, and the reader starts over.

// entryBytes is what an entry counts for against a limit of Entries: never less than raftpb's encoding of it.
func entryBytes(length int) uint64 { return uint64(length) + 32 }

// errDropped is met by a reader whose segment is gone.
var errDropped = errors.New("wal: segment was dropped")

// Entries returns the entries [lo, hi), or as many of them from lo as maxBytes allows, but at least one. What is not in
// the cache is read from disk: ErrCorrupt if it is not what was written. Callers must not change the entries' Data.
func (g *Group) Entries(lo, hi, maxBytes uint64) ([]raftpb.Entry, error) {
	if lo >= hi {
		return nil, nil
	}
	r := reading{group: g, next: lo, hi: hi, maxBytes: maxBytes, left: maxBytes}
	for tries := 0; !r.done; tries++ {
		m, seg, err := r.lookup(tries > 0)
		if err != nil {
			return nil, err
		}
		if m.n == 0 {
			continue // it was in the cache, or has to be looked up again
		}
		err = r.walk(m, seg)
		if errors.Is(err, errDropped) && g.log.closed.Load() {
			err = ErrClosed
		}
		if err != nil && !errors.Is(err, errDropped) {
			return nil, err
		}
	}
	return r.found, nil
}

// reading is one call of Entries under way.
type reading struct {
	group *Group
	next  uint64 // the entry wanted next
	hi    uint64
	found []raftpb.Entry
	done  bool
	cuts  uint64 // of the group, when it began

	maxBytes, left uint64
}

// take adds an entry, unless the limit forbids. It sets done when no more is wanted.
func (r *reading) take(e raftpb.Entry) {
	size := entryBytes(len(e.Data))
	if len(r.found) > 0 && size > r.left {
		r.done = true
		return
	}
	r.left -= min(r.left, size)
	r.found = append(r.found, e)
	r.next++
	r.done = r.next == r.hi
}

// lookup takes what is wanted next from the cache, or returns the mark and segment to read it from.
func (r *reading) lookup(started bool) (m mark, seg *segment, err error) {
	g := r.group
	g.mu.RLock()
	defer g.mu.RUnlock()
	if started && r.cuts != g.cuts {
		r.next -= uint64(len(r.found))
		r.left, r.found = r.maxBytes, nil
	}
	r.cuts = g.cuts
	if err := g.missing(r.next); err != nil {
		return mark{}, nil, err
	}
	if err := g.missing(r.hi - 1); err != nil {
		return mark{}, nil, err
	}
	warm := g.cache.live()
	if len(warm) > 0 && r.next >= warm[0].Index {
		warm = warm[r.next-warm[0].Index:]
		if r.found == nil {
			r.found = make([]raftpb.Entry, 0, countWithin(warm, r.hi-r.next, r.left))
		}
		for i := 0; !r.done; i++ {
			r.take(warm[i])
		}
		return mark{}, nil, nil
	}
	at := g.index.at(r.next)
	if at == nil {
		return mark{}, nil, g.hole(r.next)
	}
	m = *at
	if len(warm) > 0 {
		m.dropFrom(warm[0].Index) // those need not be read
	}
	return m, g.log.segment(uint64(m.segment)), nil
}

// countWithin returns how many of the first n entries a limit allows.
func countWithin(entries []raftpb.Entry, n, maxBytes uint64) (count int) {
	for i := range min(n, uint64(len(entries))) {
		size := entryBytes(len(entries[i].Data))
		if i > 0 && size > maxBytes {
			break
		}
		maxBytes -= min(maxBytes, size)
		count++
	}
	return count
}

// walk takes the entries of m that are wanted, from disk.
func (r *reading) walk(m mark, seg *segment) error {
	if seg == nil {
		return errDropped
	}
	g := r.group
	buf := make([]byte, m.end-m.off)
	if err := seg.readAt(buf, int64(m.off)); err != nil {
		return err
	}
	g.log.stats.coldReads.Add(1)
	from, took, off, chain := len(r.found), 0, 0, m.seed
	for r.next < m.hi() && !r.done {
		h, why := parseHeader(buf[off:], seg.id, int64(m.off)+int64(off))
		if why == flawNone && g.holds(h, m.term, r.next) {
			var body []byte
			if body, why = parseBody(buf[off:], h, chain); why == flawNone {
				r.take(raftpb.Entry{Term: h.term, Index: h.index, Type: raftpb.EntryType(h.typ), Data: body[:len(body):len(body)]})
				took += len(body)
			}
		}
		if why != flawNone {
			return &CorruptError{File: seg.path, Offset: int64(m.off) + int64(off), Group: g.id, Index: r.next, Through: m.hi() - 1, Reason: string(why)}
		}
		off += int(h.bytes())
		chain = h.headCRC
	}
	if took < len(buf)/2 { // do not let a few small entries hold on to all that was read
		for i := range r.found[from:] {
			e := &r.found[from+i]
			e.Data = bytes.Clone(e.Data)
		}
	}
	return nil
}

// holds reports whether the record of h is the entry i of the group.
func (g *Group) holds(h header, term, i uint64) bool {
	return (h.kind == kindEntry || h.kind == kindMoved) && h.group == g.id && h.index == i && h.term == term
}
