package wal

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// A disk can lose a block. The blocks around it are still worth reading: what is before it can be kept,
// and what is behind it says whether it was durable. So recovery reads what can be read, and judges a
// record in a lost block like one with wrong bytes: below a watermark it is corrupt, above all of them it
// is torn. A lost block that no record needs stops nothing; the tail is written over it.

// lostBlocks are blocks of a file that the disk could not return.
type lostBlocks struct {
	offs []int64 // multiples of vfs.BlockBytes, in order
	err  error   // of the first
}

// maxLostBlocks bounds how many lost blocks are tried in one file, because each attempt may take the disk
// seconds.
const maxLostBlocks = 64

// lostByte fills what could not be read. It is neither zero nor the beginning of a record.
const lostByte = 0xFF

// IsUnreadable reports whether a read failed because the disk cannot return these blocks. The rest of the
// file may be readable. It is exported for readers of segments, such as wal/inspect.
func IsUnreadable(err error) bool {
	return slices.ContainsFunc(mediumErrors, func(medium error) bool { return errors.Is(err, medium) })
}

// readAround fills p with what f holds at offset 0 and after it, except for lost blocks. reread is the error
// of a block that could only be read at a second attempt. err is any other error of the disk, or says that
// too many blocks are lost.
func readAround(f io.ReaderAt, p []byte) (lost lostBlocks, reread, err error) {
	for off := 0; off < len(p); {
		n, err := f.ReadAt(p[off:], int64(off))
		if off+n == len(p) {
			break
		}
		if !IsUnreadable(err) {
			return lost, reread, fmt.Errorf("got %d of %d bytes: %w", off+n, len(p), err)
		}
		off = (off + n) &^ blockMask
		block := p[off:min(off+vfs.BlockBytes, len(p))]
		again := error(nil)
		if n, again = f.ReadAt(block, int64(off)); n == len(block) {
			reread = err
			off += n
			continue
		}
		if !IsUnreadable(again) {
			return lost, reread, fmt.Errorf("got %d of %d bytes: %w", off+n, len(p), again)
		}
		if len(lost.offs) == maxLostBlocks {
			return lost, reread, fmt.Errorf("%d blocks cannot be read: %w", maxLostBlocks+1, again)
		}
		lost.add(int64(off), again)
		for i := range block {
			block[i] = lostByte
		}
		off += len(block)
	}
	return lost, reread, nil
}

// readWhatThereIs fills p with what the disk returns of s after off, and lost blocks with lostByte.
func (s *segment) readWhatThereIs(p []byte, off int64) error {
	err := s.readAt(p, off)
	if !IsUnreadable(err) {
		return err
	}
	for len(p) > 0 {
		piece := p[:min(int64(len(p)), vfs.BlockBytes-off&blockMask)]
		if err := s.readAt(piece, off); IsUnreadable(err) {
			for i := range piece {
				piece[i] = lostByte
			}
		} else if err != nil {
			return err
		}
		p, off = p[len(piece):], off+int64(len(piece))
	}
	return nil
}

func (b *lostBlocks) add(off int64, err error) {
	if b.err == nil {
		b.err = err
	}
	b.offs = append(b.offs, off)
}

// within returns the first lost block that has bytes of [lo, hi).
func (b *lostBlocks) within(lo, hi int64) (off int64, ok bool) {
	for _, off := range b.offs {
		if off < hi && off+vfs.BlockBytes > lo {
			return off, true
		}
	}
	return 0, false
}

// end is the end of the last lost block; 0 if none is lost.
func (b *lostBlocks) end() int64 {
	if len(b.offs) == 0 {
		return 0
	}
	return b.offs[len(b.offs)-1] + vfs.BlockBytes
}

// readContents reads the beginning of a segment for a scan.
func (t *trace) readContents(data []byte) (err error) {
	t.lost, t.reread, err = readAround(t.seg.file, data)
	lost := t.lost
	if err != nil {
		if len(lost.offs) == 0 {
			return fmt.Errorf("wal: read of %s: %w", t.seg.path, err)
		}
		return &CorruptError{File: t.seg.path, Offset: lost.offs[0], rule: ruleDisk, cause: lost.err, Reason: err.Error()}
	}
	if _, ok := lost.within(0, record.SegmentHeaderBytes); ok {
		// No header. Zeros make the rest decide whether there was one.
		clear(data[:min(vfs.BlockBytes, len(data))])
	}
	return nil
}

// reportLost logs which blocks of t the disk could not read.
func (sc *scan) reportLost(t *trace) {
	if t.reread != nil {
		sc.rereads = append(sc.rereads, rereadBlock{t.seg.path, t.reread})
		sc.logger.Warn("wal: the disk could read a block only at the second attempt", "file", t.seg.path, "err", t.reread)
	}
	for _, off := range t.lost.offs {
		sc.logger.Warn("wal: the disk cannot read a block", "file", t.seg.path, "offset", off, "err", t.lost.err)
	}
}

// judgeLost ends t with the flaw of a lost block, if the record at its end needs one. Lost blocks behind
// the end will be overwritten if t becomes the tail.
func (t *trace) judgeLost() {
	if len(t.lost.offs) == 0 {
		return
	}
	if t.why != record.FlawNone {
		if _, ok := t.lost.within(t.end, t.end+max(record.HeaderBytes, t.broken.Bytes())); ok {
			t.why = record.FlawUnreadable
		}
	}
	t.written = max(t.written, min(t.lost.end(), t.seg.size))
}

// blameDisk adds to corrupt, of the segment of t, that the disk cannot read the block at its place, where
// it cannot.
func (t *trace) blameDisk(corrupt *CorruptError) error {
	n := int64(record.HeaderBytes)
	if corrupt.Offset == t.end {
		n = max(n, t.broken.Bytes())
	}
	if off, ok := t.lost.within(corrupt.Offset, corrupt.Offset+n); ok {
		corrupt.rule, corrupt.cause = ruleDisk, t.lost.err
		corrupt.Reason = fmt.Sprintf("the disk cannot read the block at offset %d (%v); %s", off, t.lost.err, corrupt.Reason)
	}
	return corrupt
}

// rereadBlock is a block that could only be read at a second attempt.
type rereadBlock struct {
	file string
	err  error
}
