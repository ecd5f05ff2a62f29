package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// This file is how bytes get from the encoding buffer to the tail: past the page cache, in whole blocks, where the
// filesystem lets us. Every append then writes the tail's last, partly filled block again, with what was added; the
// bytes before are the same as they were, so a torn write of that block takes nothing that was durable, as the disk
// leaves each sector old or new (that is also what happens when the kernel writes back a page).
//
// Why: a buffered write has to find, clear and fill a page for each 4 KiB, and the sync has to look for them again.
// docs/decisions/0002-direct-writes.md has the measurements.

// blockMask rounds to blocks.
const blockMask = vfs.BlockBytes - 1

// block is the unit in which the segment is written: 1 byte, or a block where it is written directly.
func (s *segment) block() int64 {
	if s.direct != nil && !s.buffered.Load() {
		return vfs.BlockBytes
	}
	return 1
}

// writeAt is how appends and zeros get to the file. It returns how many bytes it may have written, from the first: all of
// them if a direct write failed, whatever that said of itself (vfs.BlockWriter). A filesystem may open a file for direct
// writes and then refuse them, or want larger blocks (EINVAL): then this segment is written through the page cache. If its
// header says that it is written directly, EINVAL is returned, as FENCE has to know first (writeBlocks).
func (s *segment) writeAt(p []byte, off int64) (touched int, err error) {
	if s.block() == 1 {
		return s.file.WriteAt(p, off)
	}
	n, err := s.direct.WriteAt(p, off)
	switch {
	case errors.Is(err, syscall.EINVAL) && !s.head.Direct:
		s.buffered.Store(true)
		return s.file.WriteAt(p, off)
	case err != nil:
		return len(p), err
	}
	return n, nil
}

// openDirect makes s be written directly, if the filesystem can and its size is made of blocks.
func (s *segment) openDirect(fs vfs.FS, path string) error {
	if s.size&blockMask != 0 {
		return nil
	}
	w, err := fs.OpenDirect(path)
	if errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wal: %w", err)
	}
	s.direct = w
	return nil
}

// startBuffer makes the buffer ready for records at the end of s: it holds what the last block of s holds already. mu is
// held.
func (l *Log) startBuffer(s *segment) error {
	l.bufAt = s.end &^ (s.block() - 1)
	l.written = int(s.end - l.bufAt)
	l.growBuffer(l.written - len(l.buf))
	l.buf = l.buf[:l.written]
	if l.written == 0 {
		return nil
	}
	return s.readAt(l.buf, l.bufAt)
}

// growBuffer makes room for n more bytes, rounded up to a block. mu is held.
func (l *Log) growBuffer(n int) {
	need := len(l.buf) + n + record.HeaderBytes + vfs.BlockBytes
	if need <= cap(l.buf) {
		return
	}
	wider := l.largeBuf
	if l.largeBuf = nil; need > cap(wider) {
		wider = vfs.Blocks(max(need, 2*cap(l.buf)))
	}
	if cap(wider) > maxBufferBytes && cap(l.buf) <= maxBufferBytes {
		l.smallBuf = l.buf[:0]
	}
	l.buf = wider[:copy(wider[:cap(wider)], l.buf)]
}

// flush writes what the buffer has gained to the tail. mu is held.
func (l *Log) flush() error {
	if _, err := l.tryFlush(); err != nil {
		return l.fail("write", l.tail, l.bufAt, err)
	}
	return nil
}

// tryFlush is flush for who knows a way out if it fails. It returns how many bytes were written at least in part.
func (l *Log) tryFlush() (wrote int, err error) {
	gained := len(l.buf) - l.written
	if gained == 0 {
		return 0, nil
	}
	if wrote, err = l.writeBlocks(); err != nil {
		return wrote, err
	}
	l.stats.appendedBytes.Add(uint64(gained))
	l.keepLastBlock(l.tail.block())
	return wrote, nil
}

// writeBlocks writes all of the buffer, and the zeros of rule R10 after it.
func (l *Log) writeBlocks() (wrote int, err error) {
	s, padded := l.tail, l.padded(0)
	direct := s.block() > 1
	s.claim(l.bufAt + int64(len(padded)))
	wrote, err = s.writeAt(padded, l.bufAt)
	if errors.Is(err, syscall.EINVAL) && direct {
		if err := l.distrustBoot(); err != nil { // a kill can tear the segment from now on
			return wrote, err
		}
		l.opts.Logger.Warn("wal: direct writes are refused; going on through the page cache", "file", s.path)
		s.buffered.Store(true)
		wrote, err = s.writeAt(padded, l.bufAt)
	}
	if err == nil && wrote != len(padded) {
		err = io.ErrShortWrite
	}
	return wrote, err
}

// padded returns the buffer with zeros after it: those of rule R10, and more if they reach to least bytes.
func (l *Log) padded(least int) []byte {
	block := l.tail.block()
	n := (max(int64(len(l.buf))+record.HeaderBytes, int64(least)) + block - 1) &^ (block - 1)
	padded := l.buf[:min(n, l.tail.size-l.bufAt)]
	clear(padded[len(l.buf):])
	return padded
}

// wipe makes the tail hold what the buffer holds and zeros behind it, where a write of spoilt bytes failed, and makes that
// durable. Only blocks that hold something else are written: where a thin volume has no room, the write failed before it
// reached them, and zeros would fail, too; a block that holds something has its room.
func (l *Log) wipe(spoilt int) error {
	want, got, wiped := l.padded(spoilt), make([]byte, wipePieceBytes), false
	for off := 0; off < len(want); {
		n := min(len(got), len(want)-off)
		if err := l.tail.readAt(got[:n], l.bufAt+int64(off)); err != nil {
			return err
		}
		if !bytes.Equal(got[:n], want[off:off+n]) {
			wiped = true
			if _, err := l.tail.writeAt(want[off:off+n], l.bufAt+int64(off)); err != nil {
				return err
			}
		}
		off += n
	}
	if !wiped {
		return nil
	}
	return l.syncSegment(l.tail)
}

// wipePieceBytes is a block, the unit in which a filesystem finds room.
const wipePieceBytes = vfs.BlockBytes

// keepLastBlock empties the buffer but for the block that the next append goes on in.
func (l *Log) keepLastBlock(block int64) {
	full := int64(len(l.buf)) &^ (block - 1)
	rest := l.buf[full:]
	if cap(l.buf) > maxBufferBytes {
		l.putLargeAway()
	}
	l.buf = l.buf[:copy(l.buf[:len(rest)], rest)]
	l.bufAt += full
	l.written = len(l.buf)
}

// putLargeAway goes on with a small buffer, and keeps the large one for the next large batch.
func (l *Log) putLargeAway() {
	if cap(l.buf) <= maxLargeBufferBytes {
		l.largeBuf = l.buf[:0]
	}
	if cap(l.smallBuf) < vfs.BlockBytes {
		l.smallBuf = vfs.Blocks(vfs.BlockBytes)
	}
	l.buf, l.smallBuf = l.smallBuf[:0], nil
}

// A log keeps two encoding buffers between appends: one of at most maxBufferBytes, and if there was a larger batch one of at
// most maxLargeBufferBytes, 40 MiB in all. What a larger batch takes is given back: nobody pays for it for ever.
const (
	maxBufferBytes      = 8 << 20
	maxLargeBufferBytes = 32 << 20
)
