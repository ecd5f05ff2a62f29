package wal

import "github.com/millrace/millrace/raft/raftpb"

// The cache holds the most recent entries as the values that were appended, so that replicating and applying them
// reads nothing. Each group has its own, a contiguous run that ends at its last entry. What to let go is decided for
// all groups together, oldest append first.

// recent is the cached end of one group's log.
type recent struct {
	entries []raftpb.Entry
	head    int // entries[:head] are evicted and zero
}

func (r *recent) live() []raftpb.Entry { return r.entries[r.head:] }

// add puts entries at the end of the run. Those at and above their indexes are gone already.
func (r *recent) add(entries []raftpb.Entry) { r.entries = append(r.entries, entries...) }

// truncate drops the entries at and above i.
func (r *recent) truncate(i uint64) {
	live := r.live()
	if len(live) == 0 || i > live[len(live)-1].Index {
		return
	}
	keep := 0
	if first := live[0].Index; i > first {
		keep = int(i - first)
	}
	clear(live[keep:])
	r.entries = r.entries[:r.head+keep]
}

// evict drops the entries up to through.
func (r *recent) evict(through uint64) {
	n := 0
	for live := r.live(); n < len(live) && live[n].Index <= through; n++ {
	}
	clear(r.entries[r.head : r.head+n])
	r.head += n
	switch {
	case r.head == len(r.entries):
		r.entries, r.head = r.entries[:0], 0
	case r.head > len(r.entries)/2:
		k := copy(r.entries, r.live())
		clear(r.entries[k:])
		r.entries, r.head = r.entries[:k], 0
	}
}

// evictions is the order in which entries leave the cache, and the sum of what is in it. Entries that a truncation
// removed are counted until their turn comes: the sum is an upper bound.
type evictions struct {
	queue []eviction
	head  int
	bytes int64
}

// eviction is one group's part of one append.
type eviction struct {
	group   *Group
	through uint64
	bytes   int64
}

// cachedEntryBytes is what an entry costs besides its data.
const cachedEntryBytes = 64

func (q *evictions) add(g *Group, entries []raftpb.Entry) {
	if len(entries) == 0 {
		return
	}
	v := eviction{group: g, through: entries[len(entries)-1].Index, bytes: cachedEntryBytes * int64(len(entries))}
	for i := range entries {
		v.bytes += int64(len(entries[i].Data))
	}
	q.queue = append(q.queue, v)
	q.bytes += v.bytes
}

// shrink evicts the oldest until at most limit bytes are left.
func (q *evictions) shrink(limit int64) {
	for q.bytes > limit {
		v := q.queue[q.head]
		q.queue[q.head] = eviction{}
		q.head++
		q.bytes -= v.bytes
		v.group.evict(v.through)
	}
	if q.head > len(q.queue)/2 {
		k := copy(q.queue, q.queue[q.head:])
		clear(q.queue[k:])
		q.queue, q.head = q.queue[:k], 0
	}
}
