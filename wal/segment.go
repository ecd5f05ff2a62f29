package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// segment is one file of the log. Its fields are grouped by their writer.
type segment struct {
	id   uint64
	path string
	cold *coldFiles
	// file is open while the segment is the tail or a later one, and until it is cold; see files.go.
	file vfs.File
	head record.SegmentHeader // set before a record is written or read
	// direct, if set, is what appends and zeros are written through; see blocks.go. A cold segment has
	// none.
	direct   vfs.BlockWriter
	buffered atomic.Bool // direct writes were refused

	// Written by the appender, under Log.mu.
	end   int64  // where the next record goes
	chain uint32 // the chain at end
	size  int64  // of the file; grows only for a record larger than a segment

	// Written by the zero-filler, under zeroMu. Bytes before zeroed are zeros or records, and the
	// zero-filler writes only from there on. An append that reaches further moves zeroed first (claim).
	zeroMu lock.Mutex
	zeroed atomic.Int64

	reached atomic.Bool // by the appender: records may be in the file, durable or not

	// syncMu serializes fdatasync: the kernel reports an error to only one of several callers. That caller
	// must make it known (Log.fail) before another caller can trust its own success.
	syncMu lock.Mutex

	// closeMu is held for reading while the file is used, so that close and eviction wait. In a cold
	// segment it guards file.
	closeMu lock.RWMutex
	closed  bool
	used    atomic.Bool // by a reader, since the cache of cold files last looked
}

// maxFileBytes bounds a segment's file. It grows only for one record that is larger than a segment, by no
// more than that record needs.
const maxFileBytes = max(maxSegmentBytes, MaxEntryBytes) + 2*vfs.BlockBytes

// maxSegmentID is the highest id that the index can hold. A log that gets there has written 2³² segments.
const maxSegmentID = math.MaxUint32

// highestID returns the highest id in the names of files: of segments, of spares made from segments, and of
// segments that were set aside. It returns 0 if there are none.
func maxID(names []string) (highest uint64) {
	for _, name := range names {
		digits, _, _ := strings.Cut(name, ".")
		if id, ok := record.ParseSegmentName(digits + record.SegmentSuffix); ok && id <= maxSegmentID {
			highest = max(highest, id)
		}
	}
	return highest
}

// claim takes the bytes up to end from the zero-filler.
func (s *segment) claim(end int64) {
	if end <= s.zeroed.Load() {
		return
	}
	s.zeroMu.Lock()
	defer s.zeroMu.Unlock()
	s.zeroed.Store(max(end, s.zeroed.Load()))
}

// readAt fills p from off.
func (s *segment) readAt(p []byte, off int64) error {
	if err := s.acquire(); err != nil {
		return err
	}
	defer s.closeMu.RUnlock()
	s.used.Store(true)
	n, err := s.file.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	return fmt.Errorf("wal: read of %d bytes of %s at offset %d got %d: %w", len(p), s.path, off, n, err)
}

// close closes the segment once its readers are done. Later readers get errDropped. It is called once.
func (s *segment) close() error {
	s.closeMu.Lock()
	defer s.closeMu.Unlock()
	s.closed = true
	s.cold.forget(s)
	err := s.closeDirect()
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
	}
	return err
}

func (s *segment) closeDirect() (err error) {
	if s.direct != nil {
		err = s.direct.Close()
		s.direct = nil
	}
	return err
}

// reserve makes the file of a segment without records larger. If the segment was sealed meanwhile, it does
// nothing.
func (s *segment) reserve(size int64) error {
	s.closeMu.RLock()
	defer s.closeMu.RUnlock()
	if s.closed || s.file == nil {
		return nil
	}
	return s.file.Preallocate(0, size)
}

// sync makes the file durable. A cold or closed segment already is.
func (s *segment) sync() error {
	s.closeMu.RLock()
	defer s.closeMu.RUnlock()
	if s.closed || s.file == nil {
		return nil
	}
	return s.file.Sync()
}

// createSegment creates a segment of at least size bytes, with zeros in the first zeroBytes. It makes the
// file and its name durable before it returns. If it fails, it leaves at most a file that recovery removes.
func (l *Log) createSegment(id uint64, size, zeroBytes int64) (_ *segment, err error) {
	s := &segment{id: id, path: l.table.segmentPath(id), end: record.SegmentHeaderBytes, size: size, cold: &l.table.cold}
	s.file, err = l.opts.FS.Create(s.path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = s.close()                // the first error is the one to tell
			_ = l.opts.FS.Remove(s.path) // what stays is an empty segment, which recovery removes
		}
	}()
	written, err := allocate(s.file, size)
	if err != nil {
		return nil, err
	}
	if err := s.openDirect(l.opts.FS, s.path); err != nil {
		return nil, err
	}
	if err := l.writeHead(s, zeroBytes); err != nil {
		return nil, err
	}
	s.zeroed.Store(max(s.zeroed.Load(), written))
	if err := s.file.Sync(); err != nil {
		return nil, err
	}
	if err := l.syncDir(); err != nil {
		return nil, err
	}
	return s, nil
}

// allocate gives a new file size bytes, and returns how many of them are zeros in written blocks: all where
// the disk can do that by itself, or none.
func allocate(f vfs.File, size int64) (written int64, err error) {
	if err := vfs.WriteZeroes(f, 0, size); !errors.Is(err, errors.ErrUnsupported) {
		return size, err
	}
	return 0, f.Preallocate(0, size)
}

// writeHead writes the header of s with a salt of its own, and zeros up to zeroBytes after it.
func (l *Log) writeHead(s *segment, zeroBytes int64) error {
	var salt [8]byte
	if _, err := io.ReadFull(l.opts.Rand, salt[:]); err != nil {
		return fmt.Errorf("wal: random numbers for the salt of %s: %w", s.path, err)
	}
	h := record.SegmentHeader{
		Version: record.FormatVersion, Generation: uint32(min(l.generation, math.MaxUint32)), ID: s.id, Owner: l.opts.Owner,
		Log: l.logID, Salt: binary.LittleEndian.Uint64(salt[:]), Size: s.size, Direct: s.block() > 1 && !l.cuts,
	}
	n := max(record.SegmentHeaderBytes, min(zeroBytes, s.size))
	head := vfs.Blocks(int((n + blockMask) &^ blockMask))
	if s.direct == nil {
		head = head[:n]
	}
	_, h.CRC = record.AppendSegmentHeader(head[:0], h)
	if _, err := s.writeAt(head, 0); err != nil {
		return err
	}
	if h.Direct && s.block() == 1 { // that write has shown that direct ones are refused
		h.Direct = false
		_, h.CRC = record.AppendSegmentHeader(head[:0], h)
		if _, err := s.writeAt(head, 0); err != nil {
			return err
		}
	}
	s.head, s.chain = h, h.CRC
	s.zeroed.Store(int64(len(head)))
	return nil
}

// writeZeros fills the next piece of a segment with zeros, up to limit. It returns the length of the piece in
// bytes.
func (s *segment) writeZeros(limit, piece int64) (int64, error) {
	s.zeroMu.Lock()
	defer s.zeroMu.Unlock()
	from := s.zeroed.Load()
	n := min(piece, limit-from)
	if n <= 0 {
		return 0, nil
	}
	if _, err := s.writeAt(zeros[:n], from); errors.Is(err, syscall.EINVAL) && s.head.Direct {
		return 0, nil // the next append will find out, and turn to the page cache
	} else if err != nil {
		return 0, err
	}
	s.zeroed.Store(from + n)
	return n, nil
}

// syncDir makes the names in the directory durable. If the sync fails, the kernel may have forgotten a name
// on which another caller is about to rely, and it tells only one of several callers. So an error is final,
// and is made known before another caller can trust its own success. A directory that cannot be opened is no
// such error, since nothing was synced; here it cannot happen, as the directory is held open.
func (l *Log) syncDir() error {
	l.dirMu.Lock()
	defer l.dirMu.Unlock()
	if err := l.failure(); err != nil {
		return err
	}
	if err := l.names.Sync(); err != nil {
		return l.failAt("sync", l.opts.Dir, 0, err)
	}
	return nil
}
