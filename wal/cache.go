package wal

import (
	"slices"
	"sort"

	"github.com/millrace/millrace/internal/arena"
	"github.com/millrace/millrace/raft/raftpb"
)

// The cache keeps the most recent entries of all groups in memory, so that replicating and applying them
// reads nothing from disk. All groups share one ring (ring.go): the entries appended first leave first. A
// group knows where in the ring its entries are (recent). Any entry may be missing, and is then read from
// disk.
//
// Small data is copied into the ring. Data of largeBytes and more is kept in the array that was appended,
// and readers get the same array.
//
// Besides its data an entry takes 9 bytes, a share of the 176 bytes of its run, and 48 bytes if its data is
// large. That is about 11 bytes where many small entries of a group follow one another, and 185 where each
// neighbour belongs to another group. Options.CacheBytes bounds all of it, and Stats.CachedBytes counts it.
// What the allocator rounds up is not counted: at most an eighth of large data.
//
// Invariant: while a run of a group covers bytes of the ring, they do not change. The appender removes the
// run from its group, under Group.mu, before it uses the bytes again. A reader copies small data out under
// Group.mu, each into an array of its own, or into memory that it borrows (Group.Borrow). So nothing outside
// refers to memory of the ring, and a state machine that keeps one command keeps no other.
//
// Rejected: keeping all entries as values. A value is a slot of 48 bytes, or twice that while the slice
// grows, and a pointer that each garbage collection follows: 2 million entries of 32 bytes took 400 MiB and
// up to 250 ms of marking. Rejected: copying all data; with 1 KiB each that took a fifth more of the
// processor's time. Rejected: chunks that readers refer to and that are never written again. A reader that
// keeps an entry would keep a chunk, and every byte would be allocated again.

// cachedRun is a part of a group's log in the ring: entries of one term with contiguous indexes.
type cachedRun struct {
	lo, term uint64
	at       uint64   // where the ring has the first
	n        uint16   // entries
	cut      bool     // entries were taken off its end: what follows in the ring is not the next entry
	large    [][]byte // data that is not in the ring, in order; perhaps also that of entries that were taken off
}

const (
	// A run ends after this many entries or bytes, because a reader walks from its beginning and it leaves
	// the ring as a whole.
	maxRunEntries = 128
	maxRunBytes   = 128 << 10
	// runBytes is the memory counted for a run: 56 bytes in recent, 32 in ring.order, and the same again
	// for the spare capacity of these slices while they grow.
	cachedRunBytes = 2 * (56 + 32)
	// Data of largeBytes or more is kept in the appended array: copying it in and out costs more than its
	// pointer does.
	largeBytes = 512
	// slotBytes is the memory counted for the place of such data in cachedRun.large.
	slotBytes = 2 * 24
)

// hi returns the index after the last entry.
func (r *cachedRun) hi() uint64 { return r.lo + uint64(r.n) }

// recent is the cache's view of one group: runs in the order of their indexes, which is also the order of
// the ring.
type recent struct {
	runs  []cachedRun
	array []cachedRun // the memory of runs, of which the first have left
	stop  readPlace   // of the last reader
}

// find returns the number of the first run that ends after i: the run that holds i, if any does.
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

// dropAt drops the run that begins at a position of the ring, if the group still has it. It is then the
// first run.
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

// unusedRuns is how much capacity a group keeps beyond twice its runs.
const unusedRuns = 8

// fit gives memory back when most of it was for runs that have left: a run counts for the memory of two
// (runBytes).
func (r *recent) fit() {
	switch n := len(r.runs); {
	case n == 0:
		r.runs, r.array = nil, nil
	case len(r.array) > 2*n+unusedRuns:
		r.reallocate()
	}
}

// reallocate moves the runs to memory with capacity for half as many more. Before they move again, a
// quarter of them has to leave or a fifth has to be added. So a group that loses one run for each new one
// moves none.
func (r *recent) reallocate() {
	n := len(r.runs)
	r.runs = append(make([]cachedRun, 0, n+n/2+4), r.runs...)
	r.array = r.runs[:cap(r.runs)]
}

// add notes that entries, of the given bytes in memory, are in the ring, beginning at at. If the group's last
// run is also the ring's last, and the entries continue it, they become a part of it.
func (r *recent) add(entries []raftpb.Entry, at uint64, bytes int, ringLast ringRun) (extended bool) {
	k := len(r.runs) - 1
	if k < 0 || ringLast.at == nowhere || r.runs[k].at != ringLast.at || !r.runs[k].continues(entries) || ringLast.takes.bytes()+bytes > maxRunBytes {
		r.reserveRun()
		r.runs = append(r.runs, cachedRun{lo: entries[0].Index, term: entries[0].Term, at: at})
		k++
	}
	into := &r.runs[k]
	into.keepLarge(entries)
	extended = into.n > 0
	into.n += uint16(len(entries))
	return extended
}

// reserveRun ensures capacity for one more run: it reuses the front of the array if enough runs have left
// it.
func (r *recent) reserveRun() {
	switch n := len(r.runs); {
	case n < cap(r.runs):
	case len(r.array) > n+n/4:
		r.runs = r.array[:copy(r.array[:n], r.runs)]
		clear(r.array[n:])
	default:
		r.reallocate()
	}
}

// keepLarge keeps the data of entries that the ring does not hold.
func (r *cachedRun) keepLarge(entries []raftpb.Entry) {
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
func (r *cachedRun) continues(entries []raftpb.Entry) bool {
	return !r.cut && r.hi() == entries[0].Index && r.term == entries[0].Term && int(r.n)+len(entries) <= maxRunEntries
}

// keep puts entries that a group has appended into the cache. mu is held.
func (t *table) keep(g *Group, entries []raftpb.Entry) {
	for len(entries) > 0 {
		k := t.beginKeep(entries)
		if k.n > 0 {
			g.mu.Lock()
			t.showRun(g, entries[:k.n], &k)
			g.mu.Unlock()
		}
		entries = entries[max(k.n, k.skip):]
	}
}

// kept is a run that is in the ring and that no group has yet.
type kept struct {
	n     int // entries
	skip  int // entries that are not kept, if n is 0
	last  ringRun
	at    uint64
	takes need
}

// beginKeep puts the first entries, as one run, into the ring. No group's lock is held, because old runs of
// any group may be evicted. mu is held.
func (t *table) beginKeep(entries []raftpb.Entry) (k kept) {
	if len(entries) == 0 {
		return k
	}
	r := &t.cache
	k.n, k.takes = nextRun(entries, r.maxRun())
	if !r.holds(k.takes) || !t.evictFor(k.takes) {
		k.n, k.skip = 0, k.n
		return k
	}
	k.last, k.at = r.last(), r.end
	r.put(entries[:k.n])
	return k
}

// showRun shows a run to the readers of its group. The mu of the log and of the group are held.
func (t *table) showRun(g *Group, entries []raftpb.Entry, k *kept) {
	r := &t.cache
	if k.last.group != g.id {
		k.last.at = nowhere // which add need not compare with then
	}
	if !g.cache.add(entries, k.at, k.takes.bytes(), k.last) {
		r.order = append(r.order, ringRun{group: g.id, at: k.at})
	}
	r.count(k.takes)
}

// need is the memory that entries take: bytes in the ring, and bytes besides it.
type need struct{ ring, large int }

func (n need) bytes() int { return n.ring + n.large }

// nextRun returns how many of the entries may form a run, at least one, and the memory that they need.
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
func (t *table) evictFor(n need) bool {
	for !t.cache.hasSpace(n) {
		if !t.cache.release(n.ring) && !t.evictOldest() {
			return false
		}
	}
	return true
}

// evictions is how many runs are dropped at once: their groups are then looked up under one lock.
const evictions = 16

// evictOldest drops the oldest runs of the cache, if there are any. mu is held.
func (t *table) evictOldest() bool {
	r := &t.cache
	if r.empty() {
		return false
	}
	oldest := r.order[r.gone:]
	oldest = oldest[:max(1, min(evictions, len(oldest)/evictions))] // of many: a cache of few runs keeps what it can
	var groups [evictions]*Group
	t.mu.RLock()
	for i := range oldest {
		groups[i] = t.groups[oldest[i].group]
	}
	t.mu.RUnlock()
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

// walker goes through the entries of a cached run.
type walker struct {
	ring   *ring
	pos    uint64
	left   uint16
	id     raftpb.EntryID // of the entry that step has come to; before the first step its index is one less than that
	typ    raftpb.EntryType
	sum    uint32
	at     uint64 // where its data is, if that is in the ring
	length int
	large  [][]byte // data that is not, from the entry's on
}

func walkRun(from *ring, r *cachedRun) walker {
	return walker{ring: from, pos: r.at, left: r.n, id: raftpb.EntryID{Index: r.lo - 1, Term: r.term}, large: r.large}
}

// step goes to the next entry. It reports false if there is none.
func (w *walker) step() bool {
	if w.left == 0 {
		return false
	}
	if w.length >= largeBytes {
		w.large = w.large[1:]
	}
	w.left--
	w.id.Index++
	w.typ, w.sum, w.at, w.length = w.ring.head(w.pos)
	if w.pos = w.at; w.length < largeBytes {
		w.pos += uint64(w.length)
	}
	return true
}

// entry returns the current entry. Its data is an array of its own, or the array that was appended. A command
// that is copied is in the loan, if there is one.
func (w *walker) entry(loan *arena.Loan) raftpb.Entry {
	e := raftpb.Entry{Term: w.id.Term, Index: w.id.Index, Type: w.typ, Sum: w.sum}
	switch {
	case w.length == 0:
	case w.length < largeBytes && loan != nil && w.typ.HoldsCommands():
		e.Data = loan.Space(w.length)
		w.ring.read(w.at, e.Data)
	case w.length < largeBytes:
		e.Data = make([]byte, w.length)
		w.ring.read(w.at, e.Data)
	default:
		e.Data = w.large[0][:w.length:w.length]
	}
	return e
}
