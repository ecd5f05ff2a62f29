package wal

import (
	"fmt"
	"sync"

	"github.com/millrace/millrace/raft/raftpb"
)

// Group is the reading end of one group's log. It is safe for concurrent use, also with Append and Sync, and shows
// what is appended, durable or not.
type Group struct {
	log *Log
	id  uint64

	// Owned by the appender, under Log.mu: what the group will look like if the current Append succeeds.
	staged struct {
		batch uint64
		last  uint64
	}

	// mu is held for moments only, never during I/O.
	mu    sync.RWMutex
	hs    raftpb.HardState
	first uint64 // index of slots[0]
	slots index
	cache recent
}

// ID returns the group's number.
func (g *Group) ID() uint64 { return g.id }

// HardState returns the term, vote and commit index last appended.
func (g *Group) HardState() raftpb.HardState {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.hs
}

// FirstIndex returns the index of the first entry that can be read; 1 if nothing was compacted.
func (g *Group) FirstIndex() uint64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.first
}

// LastIndex returns the index of the last entry; FirstIndex-1 if there is none.
func (g *Group) LastIndex() uint64 {
	g.mu.RLock()
	defer g.mu.RUnlock()
	return g.last()
}

// last is LastIndex for who holds mu, or is the appender.
func (g *Group) last() uint64 { return g.first + g.slots.n - 1 }

// Term returns the term of entry i, from memory. Entry 0 has term 0.
func (g *Group) Term(i uint64) (uint64, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if i == 0 {
		return 0, nil
	}
	if err := g.missing(i); err != nil {
		return 0, err
	}
	return g.slots.at(i - g.first).term, nil
}

// missing says why there is no entry i. mu is held.
func (g *Group) missing(i uint64) error {
	switch {
	case i < g.first:
		return fmt.Errorf("%w: group %d, index %d, the first is %d", ErrCompacted, g.id, i, g.first)
	case i > g.last():
		return fmt.Errorf("%w: group %d, index %d, the last is %d", ErrUnavailable, g.id, i, g.last())
	}
	return nil
}

// entryBytes is what an entry counts for against a limit of Entries: never less than raftpb's encoding of it.
func entryBytes(length uint32) uint64 { return uint64(length) + 32 }

// Entries returns the entries [lo, hi), or as many of them from lo as maxBytes allows, but at least one.
func (g *Group) Entries(lo, hi, maxBytes uint64) ([]raftpb.Entry, error) {
	if lo >= hi {
		return nil, nil
	}
	found, cold, err := g.lookup(lo, hi, maxBytes)
	if err != nil || len(cold) == 0 {
		return found, err
	}
	if err := g.read(found[:len(cold)], lo, cold); err != nil {
		return nil, err
	}
	return found, nil
}

// lookup returns a slice with the entries in it that are cached, and the slots of the ones before them.
func (g *Group) lookup(lo, hi, maxBytes uint64) (found []raftpb.Entry, cold []slot, err error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if err := g.missing(lo); err != nil {
		return nil, nil, err
	}
	if err := g.missing(hi - 1); err != nil {
		return nil, nil, err
	}
	n, bytes := uint64(0), uint64(0)
	for lo+n < hi {
		size := entryBytes(g.slots.at(lo + n - g.first).length)
		if n > 0 && size > maxBytes-min(maxBytes, bytes) {
			break
		}
		bytes += size
		n++
	}
	found = make([]raftpb.Entry, n)
	warm := g.cache.live()
	warmFrom := g.last() + 1 - uint64(len(warm))
	k := uint64(0) // how many are cold
	if lo < warmFrom {
		k = min(n, warmFrom-lo)
		cold = make([]slot, k)
		for i := range cold {
			cold[i] = *g.slots.at(lo + uint64(i) - g.first)
		}
	}
	if k < n {
		copy(found[k:], warm[lo+k-warmFrom:])
	}
	return found, cold, nil
}

const (
	// maxReadBytes bounds one pread, unless a single record is larger.
	maxReadBytes = 1 << 20
	// maxGapBytes is how much of other groups' records is read over rather than around.
	maxGapBytes = 16 << 10
)

// read fills entries, which start at index lo, from disk. It holds no lock: what it reads is never overwritten.
func (g *Group) read(entries []raftpb.Entry, lo uint64, slots []slot) error {
	for i := 0; i < len(slots); {
		first := slots[i]
		j, end := i+1, first.end()
		for ; j < len(slots); j++ {
			s := slots[j]
			if s.segment != first.segment || int64(s.off) > end+maxGapBytes || s.end()-int64(first.off) > maxReadBytes {
				break
			}
			end = s.end()
		}
		seg := g.log.segment(uint64(first.segment))
		buf := make([]byte, end-int64(first.off))
		if err := seg.readAt(buf, int64(first.off)); err != nil {
			return err
		}
		g.log.stats.coldReads.Add(1)
		for ; i < j; i++ {
			s := slots[i]
			e, err := g.decode(seg, s, lo+uint64(i), buf[s.off-first.off:s.end()-int64(first.off)])
			if err != nil {
				return err
			}
			entries[i] = e
		}
	}
	return nil
}

// decode checks that b is the record of entry i. The entry keeps b.
func (g *Group) decode(seg *segment, s slot, i uint64, b []byte) (raftpb.Entry, error) {
	h, body, why := parseRecord(b, seg.id, int64(s.off), s.seed)
	if why == flawNone && (h.kind != kindEntry || h.group != g.id || h.index != i || h.term != s.term) {
		why = flawShape
	}
	if why != flawNone {
		return raftpb.Entry{}, &CorruptError{File: seg.path, Offset: int64(s.off), Group: g.id, Index: i, Reason: string(why)}
	}
	return raftpb.Entry{Term: h.term, Index: h.index, Type: raftpb.EntryType(h.typ), Data: body[:len(body):len(body)]}, nil
}

// stage prepares the appender's view for a batch.
func (g *Group) stage(batch uint64) {
	if g.staged.batch != batch {
		g.staged.batch, g.staged.last = batch, g.last()
	}
}

// publish shows w, whose entries stand at slots.
func (g *Group) publish(w *Write, slots []slot) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.HardState != (raftpb.HardState{}) {
		g.hs = w.HardState
	}
	if len(w.Entries) == 0 {
		return
	}
	g.place(w.Entries[0].Index, slots)
	g.cache.replace(w.Entries)
}

// place makes slots the end of the log, from index i on.
func (g *Group) place(i uint64, slots []slot) {
	g.slots.truncate(i - g.first)
	g.slots.append(slots)
}

func (g *Group) evict(through uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.cache.evict(through)
}
