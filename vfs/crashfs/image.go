package crashfs

import (
	"bytes"
	"maps"
)

// image is the contents of a file. It is sparse, pages that were never written are zeros and cost nothing, and it is
// copied on write: a clone shares everything, the first write to either copies the table of pages, and a page is copied
// when it changes. So a crash image of a disk costs what differs from the disk, and a laboratory can afford millions.
//
// Invariant: what two images share is never written. An image with own == nil may share its table; a page belongs to the
// image whose own it carries.
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

// owner is the identity of an image. It has a size, so that no two are at one address.
type owner struct{ _ byte }

const pageBytes = 4096

var zeroPage [pageBytes]byte

// clone returns a copy. It writes m.own, unless m was cloned before and not written since.
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

// writeAt stores n bytes at off: data, or zeros if it is nil. It does not move the size.
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

// readAt fills p from off, without regard to the size.
func (m *image) readAt(p []byte, off int64) {
	for len(p) > 0 {
		k := copy(p, m.peek(off / pageBytes)[off%pageBytes:])
		p, off = p[k:], off+int64(k)
	}
}

// setSize moves the size; what lies beyond it becomes zeros.
func (m *image) setSize(size int64) {
	m.size = size
	m.writeAt(nil, size, m.reach()-size)
}

// reach returns the end of the last page, at least size.
func (m *image) reach() int64 {
	end := m.size
	for i := range m.pages {
		end = max(end, (i+1)*pageBytes)
	}
	return end
}
