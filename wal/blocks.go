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

// This file writes the encoding buffer to the tail: past the page cache and in whole blocks, where the
// filesystem allows it. Every append then writes the tail's last, partly filled block again, with the new
// bytes added. The earlier bytes of the block stay the same. So a torn write of that block loses nothing
// durable: the disk leaves each sector old or new. (The same happens when the kernel writes back a page.)
//
// Why: a buffered write has to find, clear and fill a page for each 4 KiB, and the sync has to search for
// these pages. docs/decisions/0002-direct-writes.md has the measurements.

// blockMask rounds to blocks.
const blockMask = vfs.BlockBytes - 1

// block returns the unit in which the segment is written: 1 byte, or a block if it is written directly.
func (s *segment) block() int64 {
	if s.direct != nil && !s.buffered.Load() {
		return vfs.BlockBytes
	}
	return 1
}

// writeAt writes p to the file at off, for appends and for zeros. It returns how many bytes from the first
// it may have written: all of them if a direct write failed, whatever that call returned (vfs.BlockWriter).
// A filesystem may open a file for direct writes and then refuse them, or require larger blocks (EINVAL).
// Then this segment is written through the page cache. If the segment's header promises direct writes,
// writeAt returns EINVAL, because FENCE must be changed first (writeBlocks).
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

// openDirect opens s for direct writes, if the filesystem supports them and the size of s is a multiple of
// a block.
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

// startBuffer prepares the buffer for records at the end of s: it reads what the last block of s holds
// already. mu is held.
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

// growBuffer ensures space for n more bytes, rounded up to a block. mu is held.
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

// flush writes to the tail what the buffer has gained. An error is final. mu is held.
func (l *Log) flush() error {
	if _, err := l.tryFlush(); err != nil {
		return l.fail("write", l.tail, l.bufAt, err)
	}
	return nil
}

// tryFlush is flush for callers that can recover from an error. It returns how many bytes may have been
// written.
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

// writeBlocks writes the whole buffer, and the zeros of rule R10 after it.
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

// padded returns the buffer with zeros after it: those of rule R10, or up to least bytes if that is more.
func (l *Log) padded(least int) []byte {
	block := l.tail.block()
	n := (max(int64(len(l.buf))+record.HeaderBytes, int64(least)) + block - 1) &^ (block - 1)
	padded := l.buf[:min(n, l.tail.size-l.bufAt)]
	clear(padded[len(l.buf):])
	return padded
}

// wipe restores the tail after a failed write of spoilt bytes: to what the buffer holds, with zeros after
// it, durably. It writes only the blocks that hold something else. On a thin volume without space the write
// failed before it reached the others, and zeros would fail there too; a block that holds something has its
// space.
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

// wipePieceBytes is a block, the unit in which a filesystem allocates space.
const wipePieceBytes = vfs.BlockBytes

// keepLastBlock empties the buffer except for the block in which the next append continues.
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

// putLargeAway switches to a small buffer, and keeps the large one for the next large batch.
func (l *Log) putLargeAway() {
	if cap(l.buf) <= maxLargeBufferBytes {
		l.largeBuf = l.buf[:0]
	}
	if cap(l.smallBuf) < vfs.BlockBytes {
		l.smallBuf = vfs.Blocks(vfs.BlockBytes)
	}
	l.buf, l.smallBuf = l.smallBuf[:0], nil
}

// A log keeps two encoding buffers between appends: one of at most maxBufferBytes and, after a larger
// batch, one of at most maxLargeBufferBytes: 40 MiB in all. Memory beyond that is given back after the
// batch that needed it.
const (
	maxBufferBytes      = 8 << 20
	maxLargeBufferBytes = 32 << 20
)
