package wal

import (
	"slices"
	"sort"

	"github.com/millrace/millrace/raft/raftpb"
)

// The cache keeps the most recent entries of all groups in memory, so that replicating and applying them reads nothing from
// disk. They are in one ring for all groups (ring.go): what was appended first leaves first. A group knows where in the ring
// its entries are (recent). Any entry may be missing, and is then read from disk.
//
// Small data is copied into the ring. Data of largeBytes and more is kept as it came, and readers get that very array.
//
// Besides its data an entry takes 5 bytes, a share in the 176 bytes of its run, and 48 bytes if its data is large: about 7 bytes
// in all where many small entries of a group follow one another, and 181 where each neighbour is of another group.
// Options.CacheBytes bounds all of it, and Stats.CachedBytes counts it. What the allocator rounds up is not counted: an eighth of
// large data at most.
//
// Invariant: while a run of a group covers bytes of the ring they do not change. The appender removes the run from its group,
// under Group.mu, before it uses the bytes again. A reader copies small data out under Group.mu, each into an array of its own. So
// nothing outside refers to memory of the ring, and a state machine that keeps one command keeps no other.
//
// Rejected: keeping all entries as values. A value is a slot of 48 bytes, or twice that while the slice grows, and a pointer
// that each garbage collection follows: 2 million entries of 32 bytes took 400 MiB and up to 250 ms of marking. Rejected:
// copying all data; with 1 KiB that took a fifth more of the processor's time. Rejected: chunks that readers refer to and that
// are never written again. A reader that keeps an entry would keep a chunk, and every byte would be allocated anew.

// run is a part of a group's log that stands in the ring: entries of one term, their indexes without a gap.
type run struct {
	lo, term uint64
	at       uint64   // where the ring has the first
	n        uint16   // entries
	cut      bool     // entries were taken off its end: what follows in the ring is not the next entry
	large    [][]byte // data that is not in the ring, in order; perhaps also that of entries that were taken off
}

const (
	// A run ends after so many entries or bytes: a reader walks from its beginning, and it leaves the ring as a whole.
	maxRunEntries = 128
	maxRunBytes   = 128 << 10
	// runBytes is what a run counts for: 56 bytes in recent, 32 in ring.order, and the same again for the room that these
	// slices have while they grow.
	runBytes = 2 * (56 + 32)
	// Data of so many bytes is kept as it came: to copy it in and out costs more than its pointer does.
	largeBytes = 512
	// slotBytes is what the place of such data in run.large counts for.
	slotBytes = 2 * 24
)

// hi returns the index after the last entry.
func (r *run) hi() uint64 { return r.lo + uint64(r.n) }

// recent is what the cache has of one group: runs in the order of their indexes, which is also the order of the ring.
type recent struct {
	runs []run
	room []run // the memory of runs, of which the first have left
}

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
	clear(r.runs[k:])
	r.runs = r.runs[:k]
	r.fit()
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
	clear(r.runs[:n])
	r.runs = r.runs[n:]
	r.fit()
}

// unusedRuns is how much more room than for twice its runs a group keeps.
const unusedRuns = 8

// fit gives memory back when most of it was for runs that have left: a run counts for the memory of two (runBytes).
func (r *recent) fit() {
	switch n := len(r.runs); {
	case n == 0:
		r.runs, r.room = nil, nil
	case len(r.room) > 2*n+unusedRuns:
		r.reallocate()
	}
}

// reallocate moves the runs to memory with room for half as many more. From there it takes a quarter of them to leave, or a fifth to
// come on top, before they move again: a group that loses a run for each that it gets moves none.
func (r *recent) reallocate() {
	n := len(r.runs)
	r.runs = append(make([]run, 0, n+n/2+4), r.runs...)
	r.room = r.runs[:cap(r.runs)]
}

// add says that entries, of so many bytes, are in the ring from at on. If the group's last run is the ring's too, and they go
// on in it, they become a part of it.
func (r *recent) add(entries []raftpb.Entry, at uint64, bytes int, ringLast ringRun) (extended bool) {
	k := len(r.runs) - 1
	if k < 0 || ringLast.at == nowhere || r.runs[k].at != ringLast.at || !r.runs[k].continues(entries) || ringLast.takes.bytes()+bytes > maxRunBytes {
		r.makeRoom()
		r.runs = append(r.runs, run{lo: entries[0].Index, term: entries[0].Term, at: at})
		k++
	}
	into := &r.runs[k]
	into.keepLarge(entries)
	extended = into.n > 0
	into.n += uint16(len(entries))
	return extended
}

// makeRoom makes room for one run more: at the front, if enough have left there.
func (r *recent) makeRoom() {
	switch n := len(r.runs); {
	case n < cap(r.runs):
	case len(r.room) > n+n/4:
		r.runs = r.room[:copy(r.room[:n], r.runs)]
		clear(r.room[n:])
	default:
		r.reallocate()
	}
}

// keepLarge keeps the data of entries that the ring does not.
func (r *run) keepLarge(entries []raftpb.Entry) {
	more := 0
	for i := range entries {
		if len(entries[i].Data) >= largeBytes {
			more++
		}
	}
	r.large = slices.Grow(r.large, more)
	for i := range entries {
		if len(entries[i].Data) >= largeBytes {
			r.large = append(r.large, entries[i].Data)
		}
	}
}

// continues reports whether entries may become a part of r.
func (r *run) continues(entries []raftpb.Entry) bool {
	return !r.cut && r.hi() == entries[0].Index && r.term == entries[0].Term && int(r.n)+len(entries) <= maxRunEntries
}

// keep puts entries that a group has appended into the cache. mu is held.
func (l *Log) keep(g *Group, entries []raftpb.Entry) {
	for len(entries) > 0 {
		k := l.beginKeep(entries)
		if k.n > 0 {
			g.mu.Lock()
			l.showRun(g, entries[:k.n], &k)
			g.mu.Unlock()
		}
		entries = entries[max(k.n, k.skip):]
	}
}

// kept is a run that is in the ring, and that no group has yet.
type kept struct {
	n     int // entries
	skip  int // entries that are not kept, if n is 0
	last  ringRun
	at    uint64
	takes need
}

// beginKeep puts the first entries, a run of them, into the ring. No lock of a group is held: old runs of any may go. mu is held.
func (l *Log) beginKeep(entries []raftpb.Entry) (k kept) {
	if len(entries) == 0 {
		return k
	}
	r := &l.cache
	k.n, k.takes = nextRun(entries, r.maxRun())
	if !r.holds(k.takes) || !l.makeCacheRoom(k.takes) {
		k.n, k.skip = 0, k.n
		return k
	}
	k.last, k.at = r.last(), r.end
	r.put(entries[:k.n])
	return k
}

// showRun shows a run to the readers of its group. mu and the group's mu are held.
func (l *Log) showRun(g *Group, entries []raftpb.Entry, k *kept) {
	r := &l.cache
	if k.last.group != g.id {
		k.last.at = nowhere // which add need not compare with then
	}
	if !g.cache.add(entries, k.at, k.takes.bytes(), k.last) {
		r.order = append(r.order, ringRun{group: g.id, at: k.at})
	}
	r.count(k.takes)
}

// need is what entries take: bytes in the ring, and besides it.
type need struct{ ring, large int }

func (n need) bytes() int { return n.ring + n.large }

// nextRun returns how many of the entries may become a run, at least one, and what they take.
func nextRun(entries []raftpb.Entry, maxBytes int) (n int, takes need) {
	for n < len(entries) && n < maxRunEntries && entries[n].Term == entries[0].Term {
		more := need{ring: cachedHead}
		if data := entries[n].Data; len(data) >= largeBytes {
			more.large = cap(data) + slotBytes
		} else {
			more.ring += len(data)
		}
		if n > 0 && takes.bytes()+more.bytes() > maxBytes {
			break
		}
		takes.ring += more.ring
		takes.large += more.large
		n++
	}
	return n, takes
}

// makeCacheRoom evicts until a run fits. mu is held.
func (l *Log) makeCacheRoom(n need) bool {
	for !l.cache.hasRoom(n) {
		if !l.cache.release(n.ring) && !l.evictOldest() {
			return false
		}
	}
	return true
}

// evictions is how many runs are dropped at once: the groups that they are of are then looked up under one lock.
const evictions = 16

// evictOldest drops the oldest runs of the cache, if there are any. mu is held.
func (l *Log) evictOldest() bool {
	r := &l.cache
	if r.empty() {
		return false
	}
	oldest := r.order[r.gone:]
	oldest = oldest[:max(1, min(evictions, len(oldest)/evictions))] // of many: a cache of few runs keeps what it can
	var groups [evictions]*Group
	l.tableMu.RLock()
	for i := range oldest {
		groups[i] = l.groups[oldest[i].group]
	}
	l.tableMu.RUnlock()
	for i, g := range groups[:len(oldest)] {
		if g != nil { // or it was deleted
			g.mu.Lock()
			g.cache.dropAt(oldest[i].at)
			g.mu.Unlock()
		}
	}
	for range len(oldest) {
		r.dropOldest()
	}
	return true
}

// walker goes through the entries of a run.
type walker struct {
	ring   *ring
	pos    uint64
	left   uint16
	id     entryID // of the entry that step has come to; before the first step its index is one less than that
	typ    raftpb.EntryType
	at     uint64 // where its data is, if that is in the ring
	length int
	large  [][]byte // data that is not, from the entry's on
}

func walkRun(from *ring, r *run) walker {
	return walker{ring: from, pos: r.at, left: r.n, id: entryID{index: r.lo - 1, term: r.term}, large: r.large}
}

// step goes to the next entry, if there is one.
func (w *walker) step() bool {
	if w.left == 0 {
		return false
	}
	if w.length >= largeBytes {
		w.large = w.large[1:]
	}
	w.left--
	w.id.index++
	w.typ, w.at, w.length = w.ring.head(w.pos)
	if w.pos = w.at; w.length < largeBytes {
		w.pos += uint64(w.length)
	}
	return true
}

// entry returns the entry. Its data is an array of its own, unless what was appended was not.
func (w *walker) entry() raftpb.Entry {
	e := raftpb.Entry{Term: w.id.term, Index: w.id.index, Type: w.typ}
	if w.length < largeBytes {
		e.Data = w.ring.read(w.at, w.length)
	} else {
		e.Data = w.large[0][:w.length:w.length]
	}
	return e
}
