package crashfs

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"syscall"

	"github.com/millrace/millrace/vfs"
)

// inode is a file without its names.
type inode struct {
	id      uint64 // order of creation
	live    image
	durable image
	pending []write // leads from durable to live, in order
	// forgotten is how many of pending, from the first, a Sync has failed on. The kernel treats them as
	// clean.
	forgotten int
}

// write is one un-synced change of a file: the bytes [off, off+n), and the file's length after it.
type write struct {
	off, n int64
	data   []byte // nil: zeros
	size   int64
	seq    uint64 // order among all changes of the disk
}

// record applies w to the live image and keeps it as pending until the next Sync.
func (f *file) record(w write) {
	f.disk.seq++
	w.seq = f.disk.seq
	f.node.live.apply(w)
	f.node.pending = append(f.node.pending, w)
}

func (n *inode) sync() {
	if n.forgotten > 0 {
		n.syncFresh()
		return
	}
	for _, w := range n.pending {
		n.durable.apply(w)
	}
	n.pending = nil
}

// syncFresh makes durable what was written since a Sync failed, in whole sectors, as the kernel writes them.
// Forgotten writes stay un-synced, except in sectors that were written again.
func (n *inode) syncFresh() {
	fresh := n.pending[n.forgotten:]
	if len(fresh) == 0 {
		return
	}
	written := map[int64]bool{}
	var sector [SectorBytes]byte
	for _, w := range fresh {
		for s := w.off / SectorBytes; s*SectorBytes < w.off+w.n; s++ {
			written[s] = true
			n.live.readAt(sector[:], s*SectorBytes)
			n.durable.writeAt(sector[:], s*SectorBytes, SectorBytes)
		}
	}
	n.durable.size = n.live.size
	var rest []write
	for _, w := range n.pending[:n.forgotten] {
		w.size = n.live.size
		rest = w.without(written, rest)
	}
	n.pending, n.forgotten = rest, len(rest)
}

// without appends the parts of w that lie outside the given sectors to rest.
func (w write) without(sectors map[int64]bool, rest []write) []write {
	end := w.off + w.n
	for from := w.off; from < end; {
		to := min(end, (from/SectorBytes+1)*SectorBytes)
		if sectors[from/SectorBytes] {
			from = to
			continue
		}
		for to < end && !sectors[to/SectorBytes] {
			to = min(end, to+SectorBytes)
		}
		part := write{off: from, n: to - from, size: w.size, seq: w.seq}
		if w.data != nil {
			part.data = w.data[from-w.off : to-w.off]
		}
		rest, from = append(rest, part), to
	}
	return rest
}

// file is a handle.
type file struct {
	disk   *FS
	node   *inode
	name   string
	power  uint64
	direct bool
	closed bool
}

var _ vfs.File = (*file)(nil)

// begin calls the hook and returns with the disk locked.
func (f *file) begin(kind OpKind, off, n int64) error {
	err := f.disk.begin(Op{Kind: kind, Name: f.name, Off: off, Len: n, Direct: f.direct})
	switch {
	case f.closed:
		err = &fs.PathError{Op: kind.String(), Path: f.name, Err: fs.ErrClosed}
	case off < 0 || n < 0:
		err = &fs.PathError{Op: kind.String(), Path: f.name, Err: fs.ErrInvalid}
	default:
		err = f.disk.reject(kind.String(), f.name, f.power, err)
	}
	return err
}

func (f *file) ReadAt(p []byte, off int64) (int, error) {
	err := f.begin(OpRead, off, int64(len(p)))
	defer f.disk.mu.Unlock()
	if e := effectOf(err); e != nil && (e.kind == short || e.kind == flip) {
		n, err := f.load(p, off)
		return e.read(p, n, err)
	}
	if err != nil {
		return 0, err
	}
	return f.load(p, off)
}

// load reads into p. The caller holds mu.
func (f *file) load(p []byte, off int64) (int, error) {
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
	if e := effectOf(err); e != nil {
		return e.write(f, p, off)
	}
	if err != nil {
		return 0, err
	}
	return f.store(p, off)
}

// store writes as much of p as fits on the disk. The caller holds mu.
func (f *file) store(p []byte, off int64) (int, error) {
	full := f.disk.fit(f.node, off+int64(len(p)))
	if full >= 0 {
		p = p[:max(0, min(int64(len(p)), full-off))]
	}
	if full >= 0 && f.direct {
		f.scatter(p, off, f.disk.seq)
		return 0, f.noSpace("write")
	}
	if n := int64(len(p)); n > 0 {
		w := write{off: off, n: n, size: max(f.node.live.size, off+n)}
		if !allZero(p) {
			w.data = slices.Clone(p)
		}
		f.record(w)
	}
	if full >= 0 {
		return len(p), f.noSpace("write")
	}
	return len(p), nil
}

// scatter writes some of the sectors of p, drawn from the seed: all, none, each with a chance of one in two,
// or a prefix. The caller holds mu.
func (f *file) scatter(p []byte, off int64, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 0x73636174))
	chance := rng.IntN(4) // of 2, for each sector; 3 means a prefix of random length
	until := off + rng.Int64N(int64(len(p))+1)
	for from, end := off, off+int64(len(p)); from < end; {
		to := min(end, (from/SectorBytes+1)*SectorBytes)
		if chance < 3 && rng.IntN(2) < chance || chance == 3 && from < until {
			f.record(write{off: from, n: to - from, data: slices.Clone(p[from-off : to-off]), size: max(f.node.live.size, to)})
		}
		from = to
	}
}

func (f *file) noSpace(op string) error {
	return &fs.PathError{Op: op, Path: f.name, Err: syscall.ENOSPC}
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
	if lies(err) {
		return nil
	}
	if e := effectOf(err); e != nil && e.kind == then {
		f.node.sync()
		f.disk.mu.Unlock()
		e.then()
		f.disk.mu.Lock()
		return f.disk.reject("sync", f.name, f.power, nil)
	}
	if err != nil {
		if !f.closed && f.power == f.disk.power { // the failure is the disk's, not the handle's
			f.node.forgotten = len(f.node.pending)
		}
		return err
	}
	f.node.sync()
	return nil
}

// WriteBack implements vfs.WriteBack. It changes nothing: what was not synced may survive anyway.
func (f *file) WriteBack(next, _ vfs.Span) error {
	err := f.begin(OpWriteBack, next.Off, next.Bytes)
	defer f.disk.mu.Unlock()
	if lies(err) {
		return nil
	}
	if err != nil && !f.closed && f.power == f.disk.power {
		f.node.forgotten = len(f.node.pending)
	}
	return err
}

func (f *file) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.closed {
		return 0, &fs.PathError{Op: "size", Path: f.name, Err: fs.ErrClosed}
	}
	return f.node.live.size, f.disk.reject("size", f.name, f.power, nil)
}

func (f *file) Truncate(size int64) error {
	err := f.begin(OpTruncate, size, 0)
	defer f.disk.mu.Unlock()
	if lies(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if f.disk.fit(f.node, size) >= 0 {
		return f.noSpace("truncate")
	}
	// The bytes that are cut off become zeros first, so that growing the file again cannot bring them back.
	was := f.node.live.size
	f.disk.discard(&f.node.live, size)
	f.record(write{off: size, n: max(0, was-size), size: size})
	return nil
}

func (f *file) Preallocate(off, n int64) error {
	err := f.begin(OpPreallocate, off, n)
	defer f.disk.mu.Unlock()
	if err != nil {
		return err
	}
	if f.disk.fit(f.node, off+n) >= 0 {
		return f.noSpace("preallocate")
	}
	if off+n > f.node.live.size {
		f.record(write{off: off, size: off + n})
	}
	return nil
}

// WriteZeroes implements vfs.WriteZeroes, if SetWriteZeroes has allowed it. To hooks it is an OpPreallocate.
func (f *file) WriteZeroes(off, n int64) error {
	err := f.begin(OpPreallocate, off, n)
	defer f.disk.mu.Unlock()
	switch {
	case err != nil:
		return err
	case !f.disk.zeroes:
		return &fs.PathError{Op: "fallocate", Path: f.name, Err: errors.ErrUnsupported}
	case f.disk.fit(f.node, off+n) >= 0:
		return f.noSpace("fallocate")
	}
	f.record(write{off: off, n: n, size: max(f.node.live.size, off+n)})
	return nil
}

func (f *file) Close() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.closed {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	f.closed = true
	return f.disk.reject("close", f.name, f.power, nil)
}
