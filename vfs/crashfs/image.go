package crashfs

import (
	"bytes"
	"maps"
)

// image is the contents of a file. It is sparse: pages that were never written are zeros and cost nothing. It
// is copied on write: a clone shares everything, the first write to either copy copies the table of pages,
// and a page is copied when it changes. So a crash image costs only what differs from its disk, and a
// laboratory can afford millions.
//
// Invariant: memory that two images share is never written. An image whose own is nil may share its table. A
// page belongs to the image with the same own.
type image struct {
	size  int64
	pages map[int64]*page
	own   *owner
}

type page struct {
	own    *owner
	hashed pageHash
	data   [pageBytes]byte
}

// owner is the identity of an image. It is not empty, so that no two owners have the same address.
type owner struct{ _ byte }

const pageBytes = 4096

var zeroPage [pageBytes]byte

// clone returns a copy. It resets m.own, unless that is nil already.
func (m *image) clone() image {
	if m.own != nil {
		m.own = nil
	}
	return *m
}

func (m *image) apply(w write) {
	m.writeAt(w.data, w.off, w.n)
	m.size = w.size
}

// writeAt stores n bytes at off: data, or zeros if data is nil. It does not change the size.
func (m *image) writeAt(data []byte, off, n int64) {
	for end := off + n; off < end; {
		i, at := off/pageBytes, off%pageBytes
		k := min(pageBytes-at, end-off)
		var piece []byte
		if data == nil {
			piece = zeroPage[:k]
		} else {
			piece, data = data[:k], data[k:]
		}
		off += k
		if !bytes.Equal(m.peek(i)[at:at+k], piece) {
			copy(m.page(i).data[at:], piece)
		}
	}
}

// peek returns page i for reading.
func (m *image) peek(i int64) *[pageBytes]byte {
	if p := m.pages[i]; p != nil {
		return &p.data
	}
	return &zeroPage
}

// page returns page i for writing.
func (m *image) page(i int64) *page {
	if m.own == nil {
		m.own = new(owner)
		if m.pages = maps.Clone(m.pages); m.pages == nil {
			m.pages = map[int64]*page{}
		}
	}
	p := m.pages[i]
	if p != nil && p.own == m.own {
		p.hashed.known.Store(0)
		return p
	}
	q := &page{own: m.own}
	if p != nil {
		q.data = p.data
	}
	m.pages[i] = q
	return q
}

// readAt fills p from off, ignoring the size.
func (m *image) readAt(p []byte, off int64) {
	for len(p) > 0 {
		k := copy(p, m.peek(off / pageBytes)[off%pageBytes:])
		p, off = p[k:], off+int64(k)
	}
}

// setSize changes the size. Bytes beyond it become zeros.
func (m *image) setSize(size int64) {
	m.size = size
	m.writeAt(nil, size, m.reach()-size)
}

// reach returns the end of the last page, or size if that is larger.
func (m *image) reach() int64 {
	end := m.size
	for i := range m.pages {
		end = max(end, (i+1)*pageBytes)
	}
	return end
}
