package crashfs

import (
	"encoding/binary"
	"sync/atomic"
)

// A laboratory meets the same disk again and again: for example, the image that lost everything is the same
// after every further un-synced write. Hash tells disks apart by what a reader would find, so that each is
// looked at only once.

// Hash returns a hash of everything that can be read: names of files, lengths and contents. It is the same in
// every process. Zeros that were written and zeros that never were give the same hash. Each page caches its
// hash, so hashing an image costs only what differs from the disk.
func (d *FS) Hash() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	var sum uint64
	for name, n := range d.live {
		h := mixHash(uint64(len(name)), uint64(n.live.size))
		for i := range len(name) {
			h = mixHash(h, uint64(name[i]))
		}
		sum += mixHash(h, n.live.hash())
	}
	return sum
}

func (m *image) hash() (sum uint64) {
	for i, p := range m.pages {
		if h := p.hash(); h != 0 {
			sum += mixHash(uint64(i)+1, h)
		}
	}
	return sum
}

// pageHash is the hash of a page and whether it is known. Images that share the page may ask at the same
// time.
type pageHash struct{ sum, known atomic.Uint64 }

// hash returns 0 for a page of zeros.
func (p *page) hash() uint64 {
	if p.hashed.known.Load() != 0 {
		return p.hashed.sum.Load()
	}
	var h uint64
	for off := 0; off < pageBytes; off += 8 {
		if v := binary.LittleEndian.Uint64(p.data[off:]); v != 0 {
			h += mixHash(uint64(off)+1, v)
		}
	}
	p.hashed.sum.Store(h)
	p.hashed.known.Store(1)
	return h
}

// mixHash mixes v into h.
func mixHash(h, v uint64) uint64 {
	h = (h ^ v) * 0x9e3779b97f4a7c15
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	return h ^ h>>29
}
