package crashfs

import (
	"bytes"
	"io"
	"io/fs"
	"slices"

	"github.com/millrace/millrace/vfs"
)

// inode is a file without its names.
type inode struct {
	id      uint64 // order of creation
	live    image
	durable image
	pending []write // leads from durable to live, in order
	// lying is set by a Sync that failed: from then on Sync reports success and keeps nothing.
	lying bool
}

// write is one un-synced change: the bytes [off, off+n), and the file's length after it.
type write struct {
	off, n int64
	data   []byte // nil: zeros
	size   int64
}

// change applies w to the live image and remembers it until the next Sync.
func (n *inode) change(w write) {
	n.live.apply(w)
	n.pending = append(n.pending, w)
}

func (n *inode) sync() {
	if n.lying {
		return
	}
	for _, w := range n.pending {
		n.durable.apply(w)
	}
	n.pending = nil
}

// image is the contents of a file. It is sparse: pages that were never written are zeros and cost nothing.
type image struct {
	size  int64
	pages map[int64]*[pageBytes]byte
}

const pageBytes = 4096

var zeroPage [pageBytes]byte

func (m *image) apply(w write) {
	m.writeAt(w.data, w.off, w.n)
	m.size = w.size
}

// writeAt stores n bytes at off: data, or zeros if it is nil. It does not move the size.
func (m *image) writeAt(data []byte, off, n int64) {
	for end := off + n; off < end; {
		page, at := off/pageBytes, off%pageBytes
		k := min(pageBytes-at, end-off)
		var piece []byte
		if data == nil {
			piece = zeroPage[:k]
		} else {
			piece, data = data[:k], data[k:]
		}
		off += k
		p := m.pages[page]
		if p == nil {
			if bytes.Equal(piece, zeroPage[:k]) {
				continue
			}
			p = new([pageBytes]byte)
			if m.pages == nil {
				m.pages = map[int64]*[pageBytes]byte{}
			}
			m.pages[page] = p
		}
		copy(p[at:], piece)
	}
}

// readAt fills p from off, without regard to the size.
func (m *image) readAt(p []byte, off int64) {
	for len(p) > 0 {
		at := off % pageBytes
		page := m.pages[off/pageBytes]
		if page == nil {
			page = &zeroPage
		}
		k := copy(p, page[at:])
		p, off = p[k:], off+int64(k)
	}
}

func (m *image) clone() image {
	c := image{size: m.size}
	if m.pages != nil {
		c.pages = make(map[int64]*[pageBytes]byte, len(m.pages))
	}
	for i, p := range m.pages {
		q := *p
		c.pages[i] = &q
	}
	return c
}

// file is a handle.
type file struct {
	disk   *FS
	node   *inode
	name   string
	power  uint64
	closed bool
}

var _ vfs.File = (*file)(nil)

// begin asks the hook and returns with the disk locked.
func (f *file) begin(kind OpKind, off, n int64) error {
	err := f.disk.begin(Op{Kind: kind, Name: f.name, Off: off, Len: n})
	switch {
	case f.closed:
		err = &fs.PathError{Op: kind.String(), Path: f.name, Err: fs.ErrClosed}
	case off < 0 || n < 0:
		err = &fs.PathError{Op: kind.String(), Path: f.name, Err: fs.ErrInvalid}
	default:
		err = f.disk.refuse(kind.String(), f.name, f.power, err)
	}
	return err
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	err := f.begin(OpRead, off, int64(len(p)))
	defer f.disk.mu.Unlock()
	if err != nil {
		return 0, err
	}
	m := &f.node.live
	n := min(int64(len(p)), max(0, m.size-off))
	m.readAt(p[:n], off)
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

func (f *file) WriteAt(p []byte, off int64) (int, error) {
	err := f.begin(OpWrite, off, int64(len(p)))
	defer f.disk.mu.Unlock()
	if err != nil {
		return 0, err
	}
	n := int64(len(p))
	w := write{off: off, n: n, size: max(f.node.live.size, off+n)}
	if !allZero(p) {
		w.data = slices.Clone(p)
	}
	f.node.change(w)
	return len(p), nil
}

func allZero(p []byte) bool {
	for len(p) > pageBytes {
		if !bytes.Equal(p[:pageBytes], zeroPage[:]) {
			return false
		}
		p = p[pageBytes:]
	}
	return bytes.Equal(p, zeroPage[:len(p)])
}

func (f *file) Sync() error {
	err := f.begin(OpSync, 0, 0)
	defer f.disk.mu.Unlock()
	if err != nil {
		if !f.closed && f.power == f.disk.power { // the disk said no, rather than us
			f.node.lying = true
		}
		return err
	}
	f.node.sync()
	return nil
}

func (f *file) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.closed {
		return 0, &fs.PathError{Op: "size", Path: f.name, Err: fs.ErrClosed}
	}
	return f.node.live.size, f.disk.refuse("size", f.name, f.power, nil)
}

func (f *file) Truncate(size int64) error {
	err := f.begin(OpTruncate, size, 0)
	defer f.disk.mu.Unlock()
	if err != nil {
		return err
	}
	// What is cut off becomes zeros first, so that growing again cannot bring it back.
	was := f.node.live.size
	f.node.change(write{off: size, n: max(0, was-size), size: size})
	return nil
}

func (f *file) Preallocate(off, n int64) error {
	err := f.begin(OpPreallocate, off, n)
	defer f.disk.mu.Unlock()
	if err != nil {
		return err
	}
	if off+n > f.node.live.size {
		f.node.change(write{off: off, size: off + n})
	}
	return nil
}

func (f *file) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	return f.disk.refuse("close", f.name, f.power, nil)
}
