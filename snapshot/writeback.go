package snapshot

import "github.com/millrace/millrace/vfs"

// paceBytes is how much of what a store writes begins to be written to the disk at a time: at most twice as
// much waits in the kernel's memory. With more of it the sync at the end would take long, and so would the
// syncs of a log on the same disk, which wait behind it.
const paceBytes = 2 << 20

// paced says when what was written to a file is written to the disk.
type paced struct{ every, waits int64 }

// due is called after n more bytes were written. If it returns true, the disk is given what was written since
// it did so before.
func (p *paced) due(n int) bool {
	if p.waits += int64(n); p.waits < p.every {
		return false
	}
	p.waits = 0
	return true
}

// pacedFile is paced, for the only file that is written.
type pacedFile struct {
	paced
	written
}

// wrote is called after n bytes were written to f at off.
func (p *pacedFile) wrote(f vfs.File, off int64, n int) error {
	p.add(off, n)
	if !p.due(n) {
		return nil
	}
	return p.writeBack(f)
}

// written is what was written to a file, and not synced.
type written struct {
	next vfs.Span // since the disk was given something
	last vfs.Span // what it was given then
}

func (w *written) add(off int64, n int) { w.next = w.next.With(vfs.Span{Off: off, Bytes: int64(n)}) }

// writeBack gives the disk what was written to f.
func (w *written) writeBack(f vfs.File) error {
	next, last := w.next, w.last
	*w = written{last: next}
	return vfs.WriteBack(f, next, last)
}
