package wal

// slot is where an entry stands on disk: all that is needed to find it, to check it and to answer Term without
// reading it. There are no pointers in it, so a large log costs the garbage collector nothing.
type slot struct {
	term    uint64
	segment uint32 // the low half of the id; 2^32 segments are more than a disk holds
	off     uint32
	length  uint32 // of the body
	seed    uint32 // the chain before the record
}

func (s slot) end() int64 { return int64(s.off) + recordBytes(int(s.length)) }

const chunkSlots = 1024

// index is the slots of a group's entries in order. It grows by chunks: nothing is ever copied while readers wait.
type index struct {
	chunks []*[chunkSlots]slot
	n      uint64
}

func (x *index) at(i uint64) *slot { return &x.chunks[i/chunkSlots][i%chunkSlots] }

// truncate keeps the first n slots.
func (x *index) truncate(n uint64) {
	keep := (n + chunkSlots - 1) / chunkSlots
	clear(x.chunks[keep:])
	x.chunks, x.n = x.chunks[:keep], n
}

func (x *index) append(slots []slot) {
	for len(slots) > 0 {
		at := x.n % chunkSlots
		if at == 0 {
			x.chunks = append(x.chunks, new([chunkSlots]slot))
		}
		k := copy(x.chunks[len(x.chunks)-1][at:], slots)
		slots, x.n = slots[k:], x.n+uint64(k)
	}
}
