package wal

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/millrace/millrace/raft/raftpb"
)

// ring is the memory of the cache: bytes of entries, one after another, in chunks that are reused.
//
//	chunk         chunk         chunk         chunk
//	[...eeeeeeeee][eeeeeeeeeeee][eeeeeeeeeeee][eee.........]
//	    ^ oldest                                  ^ end
//	entry: length(4) sum(4) type(1) data     data may continue in the next chunk, what is before it does not
//
// Data of largeBytes or more is elsewhere: its run keeps the appended array (cachedRun.large), and the ring
// holds only what is before the data. The sum is raftpb.Entry.Sum as it was appended: what rots in the cache
// is not sealed as good when it is sent.
//
// A position is a number of bytes since Open, so it never repeats. A chunk holds no pointers, so the
// garbage collector has nothing to scan, however many small entries are cached.
//
// Only the appender changes a ring, under Log.mu. Readers look at the chunks that a run of their group
// covers, and at nothing else in it: those chunks stay in place as long as the run does.
type ring struct {
	limit  int64    // of bytes
	shift  uint     // a chunk has 1<<shift bytes
	chunks [][]byte // position p is in chunks[p>>shift%len(chunks)]
	spare  [][]byte // chunks that hold nothing
	top    uint64   // chunks below have, or had, memory
	held   int64    // chunks that have memory, spare ones included
	end    uint64
	large  int64     // bytes that entries in the ring take besides it
	order  []ringRun // order[gone:] are the runs in the ring, oldest first
	gone   int
}

// ringRun is a run as the ring knows it. Its group may have dropped it already.
type ringRun struct {
	group, at uint64
	takes     need
}

const (
	cachedHead    = 4 + 4 + 1 // of an entry, before its data
	minChunkShift = 6
	maxChunkShift = 18 // 256 KiB

	nowhere = math.MaxUint64 // no position
)

// newRing returns a ring that takes at most limit bytes. With a limit below a few hundred bytes it holds
// nothing.
func newRing(limit int64) ring {
	r := ring{limit: max(0, limit)}
	// A chunk is at most a sixteenth of the limit, so the free space at both ends of the ring is small.
	r.shift = uint(min(max(bits.Len64(uint64(r.limit)/16)-1, minChunkShift), maxChunkShift))
	r.chunks = make([][]byte, r.limit>>r.shift+1)
	return r
}

// bytes returns the memory that the cache takes.
func (r *ring) bytes() int64 {
	return r.held<<r.shift + r.large + int64(len(r.order)-r.gone)*cachedRunBytes
}

// oldest returns the position of the oldest run.
func (r *ring) oldest() uint64 {
	if r.empty() {
		return r.end
	}
	return r.order[r.gone].at
}

// last returns the newest run; of an empty ring, one that is nowhere.
func (r *ring) last() ringRun {
	if r.empty() {
		return ringRun{at: nowhere}
	}
	return r.order[len(r.order)-1]
}

func (r *ring) empty() bool { return r.gone == len(r.order) }

// maxRun returns how many bytes a run of several entries may have.
func (r *ring) maxRun() int { return int(min(maxRunBytes, r.limit/8)) }

// holds reports whether the limit is large enough for a run beside others.
func (r *ring) holds(n need) bool { return r.limit/4*3 >= int64(n.bytes())+4<<r.shift+cachedRunBytes }

// hasSpace reports whether one more run stays within the limit.
func (r *ring) hasSpace(n need) bool {
	return r.bytes()+max(0, r.chunksFor(n.ring)-int64(len(r.spare)))<<r.shift+int64(n.large)+cachedRunBytes <= r.limit
}

// count adds what entries take to the newest run.
func (r *ring) count(n need) {
	newest := &r.order[len(r.order)-1].takes
	newest.ring += n.ring
	newest.large += n.large
	r.large += int64(n.large)
}

// chunksFor returns how many more chunks a run of n bytes needs.
func (r *ring) chunksFor(n int) int64 {
	n += cachedHead * (n>>r.shift + 2) // of each chunk that it leaves, a few bytes stay free
	return int64((r.end+uint64(n))>>r.shift) + 1 - int64(r.top)
}

// put copies entries to the end, as a new run or as a part of the last one. hasSpace has said that they
// fit.
func (r *ring) put(entries []raftpb.Entry) {
	for i := range entries {
		e := &entries[i]
		r.end = r.headAt(r.end)
		head := r.space(r.end)
		binary.LittleEndian.PutUint32(head, uint32(len(e.Data)))
		binary.LittleEndian.PutUint32(head[4:], e.Sum)
		head[8] = uint8(e.Type)
		r.end += cachedHead
		if len(e.Data) >= largeBytes {
			continue
		}
		for rest := e.Data; len(rest) > 0; {
			n := copy(r.space(r.end), rest)
			rest = rest[n:]
			r.end += uint64(n)
		}
	}
}

// space returns the rest of the chunk at p, and allocates the chunk if it has no memory yet.
func (r *ring) space(p uint64) []byte {
	if p>>r.shift == r.top {
		r.chunks[r.top%uint64(len(r.chunks))] = r.chunk()
		r.top++
	}
	return r.from(p)
}

// chunk returns memory for a chunk.
func (r *ring) chunk() []byte {
	if k := len(r.spare) - 1; k >= 0 {
		c := r.spare[k]
		r.spare[k], r.spare = nil, r.spare[:k]
		return c
	}
	r.held++
	return make([]byte, 1<<r.shift)
}

// release gives a spare chunk back to the collector, unless a run of n bytes will need it. It always keeps
// one, in which the ring will continue.
func (r *ring) release(n int) bool {
	k := len(r.spare) - 1
	if k < 1 || int64(k) < r.chunksFor(n) {
		return false
	}
	r.spare[k], r.spare = nil, r.spare[:k]
	r.held--
	return true
}

// dropOldest forgets the oldest run. No group has it any more.
func (r *ring) dropOldest() {
	from := r.oldest() >> r.shift
	r.large -= int64(r.order[r.gone].takes.large)
	r.gone++
	for k := from; k < min(r.oldest()>>r.shift, r.top); k++ {
		slot := &r.chunks[k%uint64(len(r.chunks))]
		r.spare, *slot = append(r.spare, *slot), nil
	}
	if r.gone > len(r.order)/2 {
		r.order, r.gone = r.order[:copy(r.order, r.order[r.gone:])], 0
	}
}

// headAt returns where the entry after p stands: a head is never split between two chunks.
func (r *ring) headAt(p uint64) uint64 {
	if left := 1<<r.shift - p&(1<<r.shift-1); left < cachedHead {
		p += left
	}
	return p
}

// from returns the rest of the chunk at p.
func (r *ring) from(p uint64) []byte {
	return r.chunks[(p>>r.shift)%uint64(len(r.chunks))][p&(1<<r.shift-1):]
}

// head returns type and sum of the entry at p, where its data begins, and how long that is.
func (r *ring) head(p uint64) (typ raftpb.EntryType, sum uint32, at uint64, length int) {
	p = r.headAt(p)
	b := r.from(p)
	return raftpb.EntryType(b[8]), binary.LittleEndian.Uint32(b[4:]), p + cachedHead, int(binary.LittleEndian.Uint32(b))
}

// read copies the bytes at p into all of data.
func (r *ring) read(p uint64, data []byte) {
	for done := 0; done < len(data); {
		done += copy(data[done:], r.from(p+uint64(done)))
	}
}
