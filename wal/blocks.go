package wal

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/millrace/millrace/vfs"
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

// writeAt is how appends and zeros get to the file. A filesystem may open a file for direct writes and then refuse them, or want
// larger blocks (EINVAL): then this segment is written through the page cache. If its header says that it is written directly,
// EINVAL is returned, as FENCE has to know first (writeBlocks).
func (s *segment) writeAt(p []byte, off int64) (int, error) {
	if s.block() == 1 {
		return s.file.WriteAt(p, off)
	}
	n, err := s.direct.WriteAt(p, off)
	if errors.Is(err, syscall.EINVAL) && !s.head.direct {
		s.buffered.Store(true)
		return s.file.WriteAt(p, off)
	}
	return n, err
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
	need := len(l.buf) + n + recordHead + vfs.BlockBytes
	if need <= cap(l.buf) {
		return
	}
	wider := vfs.Blocks(max(need, 2*cap(l.buf)))
	l.buf = wider[:copy(wider, l.buf)]
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
	if wrote, err = l.writeBlocks(0); err != nil {
		return wrote, err
	}
	l.stats.appendedBytes.Add(uint64(gained))
	l.keepLastBlock(l.tail.block())
	return wrote, nil
}

// writeBlocks writes all of the buffer, and zeros after it: those of rule R10, and as many as it takes to cover the first
// spoilt bytes of where it goes, which were written in part.
func (l *Log) writeBlocks(spoilt int) (wrote int, err error) {
	s := l.tail
	block := s.block()
	n := (max(int64(len(l.buf))+recordHead, int64(spoilt)) + block - 1) &^ (block - 1)
	n = min(n, s.size-l.bufAt)
	padded := l.buf[:n]
	clear(padded[len(l.buf):])
	s.claim(l.bufAt + n)
	wrote, err = s.writeAt(padded, l.bufAt)
	if errors.Is(err, syscall.EINVAL) && block > 1 {
		if err := l.distrustBoot(); err != nil { // a kill can tear the segment from now on
			return wrote, err
		}
		l.opts.Logger.Warn("wal: direct writes are refused; going on through the page cache", "file", s.path)
		s.buffered.Store(true)
		wrote, err = s.writeAt(padded, l.bufAt)
	}
	if err == nil && int64(wrote) != n {
		err = io.ErrShortWrite
	}
	return wrote, err
}

// keepLastBlock empties the buffer but for the block that the next append goes on in.
func (l *Log) keepLastBlock(block int64) {
	full := int64(len(l.buf)) &^ (block - 1)
	rest := l.buf[full:]
	if cap(l.buf) > maxIdleBufferBytes {
		l.buf = vfs.Blocks(vfs.BlockBytes)[:0]
	}
	l.buf = l.buf[:copy(l.buf[:len(rest)], rest)]
	l.bufAt += full
	l.written = len(l.buf)
}

// maxIdleBufferBytes bounds the encoding buffer between appends; one huge batch must not be paid for for ever.
const maxIdleBufferBytes = 8 << 20
