package wal

import (
	"sort"

	"github.com/millrace/millrace/raft/raftpb"
)

// The cache keeps the most recent entries of all groups in memory, so that replicating and applying them reads nothing from
// disk. Their bytes are in one ring for all groups (ring.go): what was appended first leaves first. A group knows where in the
// ring its entries are (recent). Any entry may be missing, and is then read from disk.
//
// Besides its data an entry takes 5 bytes, and a share in the 96 bytes of its run: 6 bytes in all where many entries of a
// group follow one another, 101 where each neighbour is of another group. Options.CacheBytes bounds all of it, and
// Stats.CachedBytes counts it.
//
// Invariant: while a run of a group covers bytes of the ring they do not change. The appender removes the run from its group,
// under Group.mu, before it uses the bytes again. A reader copies entries out under Group.mu, each into an array of its own. So
// nothing outside refers to memory of the ring, and a state machine that keeps one command keeps no other.
//
// Rejected: keeping entries as values. A value is a slot of 48 bytes, or twice that while the slice grows, and a pointer that
// each garbage collection follows: 2 million entries of 32 bytes took 400 MiB and up to 250 ms of marking. Also rejected: chunks
// that readers refer to and that are never written again. A reader that keeps an entry would keep a chunk, and every byte that
// is appended would be allocated anew.

// run is a part of a group's log that stands in the ring: entries of one term, their indexes without a gap.
type run struct {
	lo, term uint64
	at       uint64 // where the ring has the first
	n        uint16 // entries
	cut      bool   // entries were taken off its end: what follows in the ring is not the next entry
}

const (
	// A run ends after so many entries or bytes: a reader walks from its beginning, and it leaves the ring as a whole.
	maxRunEntries = 128
	maxRunBytes   = 16 << 10
	// runBytes is what a run counts for: 32 bytes in recent, 16 in ring.order, and the same again for the room that these
	// slices have while they grow.
	runBytes = 2 * (32 + 16)
)

// hi returns the index after the last entry.
func (r *run) hi() uint64 { return r.lo + uint64(r.n) }

// recent is what the cache has of one group: runs in the order of their indexes, which is also the order of the ring.
type recent struct{ runs []run }

// find returns the number of the first run that ends after i: the one that holds i, if any does.
func (r *recent) find(i uint64) int {
	return sort.Search(len(r.runs), func(k int) bool { return r.runs[k].hi() > i })
}

// truncate drops the entries at and above i.
func (r *recent) truncate(i uint64) {
	k := r.find(i)
	if k < len(r.runs) && r.runs[k].lo < i {
		r.runs[k].n, r.runs[k].cut = uint16(i-r.runs[k].lo), true
		k++
	}
	r.runs = r.runs[:k]
}

// compact drops the runs that end at or below i.
func (r *recent) compact(i uint64) { r.dropFirst(r.find(i + 1)) }

// dropAt drops the run that begins at a position of the ring, if the group still has it. It is the first then.
func (r *recent) dropAt(at uint64) {
	if len(r.runs) > 0 && r.runs[0].at == at {
		r.dropFirst(1)
	}
}

func (r *recent) dropFirst(n int) {
	if r.runs = r.runs[n:]; len(r.runs) == 0 {
		r.runs = nil
	}
}

// add says that entries are in the ring from at on. If the group's last run is the ring's too, and they go on in it, they
// become a part of it.
func (r *recent) add(entries []raftpb.Entry, at, end uint64, ringLast ringRun) (extended bool) {
	if k := len(r.runs) - 1; k >= 0 && r.runs[k].at == ringLast.at {
		last := &r.runs[k]
		if !last.cut && last.hi() == entries[0].Index && last.term == entries[0].Term &&
			int(last.n)+len(entries) <= maxRunEntries && end-last.at <= maxRunBytes {
			last.n += uint16(len(entries))
			return true
		}
	}
	r.runs = append(r.runs, run{lo: entries[0].Index, term: entries[0].Term, at: at, n: uint16(len(entries))})
	return false
}

// keep puts entries that a group has appended into the cache. mu is held.
func (l *Log) keep(g *Group, entries []raftpb.Entry) {
	for len(entries) > 0 {
		n, bytes := nextRun(entries, l.cache.maxRun())
		if l.cache.holds(bytes) && l.makeCacheRoom(bytes) {
			l.keepRun(g, entries[:n])
		}
		entries = entries[n:]
	}
}

// nextRun returns how many of the entries may become a run, at least one, and what they take in the ring.
func nextRun(entries []raftpb.Entry, maxBytes int) (n, bytes int) {
	for n < len(entries) && n < maxRunEntries && entries[n].Term == entries[0].Term {
		more := cachedHead + len(entries[n].Data)
		if n > 0 && bytes+more > maxBytes {
			break
		}
		bytes += more
		n++
	}
	return n, bytes
}

// makeCacheRoom evicts until a run of so many bytes fits. mu is held.
func (l *Log) makeCacheRoom(bytes int) bool {
	for !l.cache.hasRoom(bytes) {
		if !l.cache.release(bytes) && !l.evictOldest() {
			return false
		}
	}
	return true
}

// evictOldest drops the oldest run of the cache, if there is one. mu is held.
func (l *Log) evictOldest() bool {
	if l.cache.empty() {
		return false
	}
	oldest := l.cache.order[l.cache.gone]
	g := l.Group(oldest.group)
	g.mu.Lock()
	g.cache.dropAt(oldest.at)
	g.mu.Unlock()
	l.cache.dropOldest()
	return true
}

// keepRun puts entries into the ring, and then shows them to readers. mu is held.
func (l *Log) keepRun(g *Group, entries []raftpb.Entry) {
	r := &l.cache
	last, at := r.last(), r.end
	r.put(entries)
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.cache.add(entries, at, r.end, last) {
		r.order = append(r.order, ringRun{group: g.id, at: at})
	}
}

// walker goes through the entries of a run.
type walker struct {
	ring   *ring
	pos    uint64
	left   uint16
	id     entryID // of the entry that step has come to; before the first step its index is one less than that
	typ    raftpb.EntryType
	at     uint64 // where its data is
	length int
}

func walkRun(from *ring, r *run) walker {
	return walker{ring: from, pos: r.at, left: r.n, id: entryID{index: r.lo - 1, term: r.term}}
}

// step goes to the next entry, if there is one.
func (w *walker) step() bool {
	if w.left == 0 {
		return false
	}
	w.left--
	w.id.index++
	w.typ, w.at, w.length = w.ring.head(w.pos)
	w.pos = w.at + uint64(w.length)
	return true
}

// entry returns the entry, with data of its own.
func (w *walker) entry() raftpb.Entry {
	return raftpb.Entry{Term: w.id.term, Index: w.id.index, Type: w.typ, Data: w.ring.read(w.at, w.length)}
}
