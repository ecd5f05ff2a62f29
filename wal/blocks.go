package wal

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/millrace/millrace/vfs"
)

// This file writes the encoding buffer to the tail: past the page cache and in whole blocks, where the
// filesystem allows it. Every append then writes the tail's last, partly filled block again, with the new
// bytes added. The earlier bytes of the block stay the same. So a torn write of that block loses nothing
// durable: the disk leaves each sector old or new. (The same happens when the kernel writes back a page.)
//
// Why: a buffered write has to find, clear and fill a page for each 4 KiB, and the sync has to search for
// these pages. Decision 0002 has the measurements.

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
	l.tail.bufAt = s.end &^ (s.block() - 1)
	l.tail.written = int(s.end - l.tail.bufAt)
	l.tail.growBuffer(l.tail.written - len(l.tail.buf))
	l.tail.buf = l.tail.buf[:l.tail.written]
	if l.tail.written == 0 {
		return nil
	}
	return s.readAt(l.tail.buf, l.tail.bufAt)
}

// flush writes to the tail what the buffer has gained. An error is final. mu is held.
func (l *Log) flush() error {
	if _, err := l.tryFlush(); err != nil {
		return l.fail("write", l.tail.seg, l.tail.bufAt, err)
	}
	return nil
}

// tryFlush is flush for callers that can recover from an error. It returns how many bytes may have been
// written.
func (l *Log) tryFlush() (wrote int, err error) {
	gained := len(l.tail.buf) - l.tail.written
	if gained == 0 {
		return 0, nil
	}
	if wrote, err = l.writeBlocks(); err != nil {
		return wrote, err
	}
	l.stats.appendedBytes.Add(uint64(gained))
	l.tail.keepLastBlock(l.tail.seg.block())
	return wrote, nil
}

// writeBlocks writes the whole buffer, and the zeros of rule R10 after it.
func (l *Log) writeBlocks() (wrote int, err error) {
	s, padded := l.tail.seg, l.tail.padded()
	direct := s.block() > 1
	s.claim(l.tail.bufAt + int64(len(padded)))
	wrote, err = s.writeAt(padded, l.tail.bufAt)
	if errors.Is(err, syscall.EINVAL) && direct {
		if err := l.distrustBoot(); err != nil { // a kill can tear the segment from now on
			return wrote, err
		}
		l.opts.Logger.Warn("wal: direct writes are refused; continuing through the page cache", "file", s.path)
		s.buffered.Store(true)
		wrote, err = s.writeAt(padded, l.tail.bufAt)
	}
	if err == nil && wrote != len(padded) {
		err = io.ErrShortWrite
	}
	return wrote, err
}
