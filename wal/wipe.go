package wal

import (
	"bytes"

	"github.com/millrace/millrace/vfs"
)

// A write that a full disk refuses may have put some of its bytes into the file. They must go, durably,
// before anything else is appended: another record could be followed by what is left of them, and a power
// cut could bring back what was refused.
//
// A disk without space may refuse this wipe, too: where nothing is overwritten in place, each write needs
// space. So the wipe is due until it succeeds, and each append tries it first. Until then the log refuses
// all appends as a full disk does. A crash meanwhile may bring back the refused append, or the first of its
// writes, as a crash during the append could.
//
// Rejected: to stop the log, since a full disk would cost a restart. Rejected as well: to leave blocks alone
// that hold none of the refused bytes, since a torn sector may hold a part of them.

// residue is a piece of a segment in which bytes of a refused append may be.
type residue struct {
	seg   *segment
	at    int64
	keep  []byte // what belongs at the beginning of the piece; zeros belong after it
	n     int64  // the length of the piece
	begun bool   // a write has changed something, and no sync was done since
}

// leave notes that the tail may hold bytes of a refused append after what the buffer holds. spoilt is how
// far, from the beginning of the buffer. mu is held.
func (l *Log) leave(spoilt int) {
	l.tail.residues = append(l.tail.residues, residue{seg: l.tail.seg, at: l.tail.bufAt, keep: bytes.Clone(l.tail.buf), n: l.tail.paddedBytes(spoilt)})
}

// wipe removes what refused appends have left, piece by piece, in the order in which they were noted. If the
// disk has no space for that, the rest stays due, and after a kill a recovery must not take it for damage.
// mu is held.
func (l *Log) wipe() error {
	for len(l.tail.residues) > 0 {
		r := &l.tail.residues[0]
		if err := r.clear(); err != nil {
			_ = l.distrustBoot() // if FENCE cannot be written either, the next attempt tries again
			return err
		}
		if r.begun {
			if err := l.syncSegment(r.seg); err != nil {
				return err
			}
		}
		l.tail.residues = l.tail.residues[1:]
	}
	l.tail.residues = nil
	return nil
}

// clear writes the blocks of the piece that hold something else than they should. On a thin volume without
// space the refused write failed before it reached the others, and zeros would fail there too. A block that
// holds something has its space.
func (r *residue) clear() error {
	want, got := vfs.Blocks(wipePieceBytes), make([]byte, wipePieceBytes)
	for off := int64(0); off < r.n; off += wipePieceBytes {
		n := min(wipePieceBytes, r.n-off)
		clear(want)
		if off < int64(len(r.keep)) {
			copy(want[:n], r.keep[off:])
		}
		if err := r.seg.readAt(got[:n], r.at+off); err != nil {
			return err
		}
		if bytes.Equal(got[:n], want[:n]) {
			continue
		}
		r.begun = true
		if _, err := r.seg.writeAt(want[:n], r.at+off); err != nil {
			return err
		}
	}
	return nil
}

// wipePieceBytes is a block, the unit in which a filesystem allocates space.
const wipePieceBytes = vfs.BlockBytes
