package wal

import (
	"errors"
	"syscall"

	"github.com/millrace/millrace/vfs"
)

// This file is the helper that keeps the append path free of everything but data: it makes the next segment before the
// tail is full, and writes zeros ahead of the records.
//
// Zeros matter because an fdatasync into blocks that were allocated but never written has to commit to the
// filesystem's journal that they are written now. Into zero-filled blocks it commits nothing. They cost bandwidth, one
// byte for each byte of log, so they are worth it only while syncs are small and frequent. Whether they are is read
// off the bytes that each sync makes durable, not off a clock: a simulation must come to the same decision.

const (
	// zeroPieceBytes bounds one piece of the helper's work.
	zeroPieceBytes = 1 << 20
	// maxZeroedSyncBytes is the mean size of a sync up to which zeros pay. Below it the journal commit saved (some
	// 50-100 us) is dearer than the bytes written twice, on a disk of about 1 GB/s.
	maxZeroedSyncBytes = 32 << 10
)

// pace is a moving average of the bytes that one sync makes durable.
type pace struct{ bytes int64 }

func (p *pace) observe(bytes int64) { p.bytes += (bytes - p.bytes) / 8 }

func (p *pace) wantsZeros() bool { return p.bytes <= maxZeroedSyncBytes }

// helper is the env.Worker of a Log.
type helper struct {
	log *Log
	// Where the tail stood when a segment could not be prepared: no new attempt before it has grown by a piece. A full
	// disk would otherwise be asked, and told of, at every sync.
	failed position
}

// wakeHelper asks the helper to look around. During recovery there is none yet; Open wakes it.
func (l *Log) wakeHelper() {
	if l.helper != nil {
		l.helper.Wake()
	}
}

// RunOnce does one of: zero-fill a piece of the tail, make the next segment or the reserve, zero-fill a piece of the
// next, free a segment or move a piece out of one.
func (h *helper) RunOnce() (more bool) {
	l := h.log
	if l.failure() != nil {
		return false
	}
	if l.flushDue.Swap(false) {
		return l.syncNow() == nil // an error is the log's last word: the next Append returns it
	}
	l.mu.Lock()
	tail, end, wanted := l.tail, l.tail.end, l.pace.wantsZeros() && l.opts.Mode.Kind != KindMemory
	l.mu.Unlock()
	if wanted && l.zeroPiece(tail) {
		return true
	}
	if h.failed.segment != tail.id || end >= h.failed.off+zeroPieceBytes {
		created, err := l.prepareAhead()
		if err != nil {
			// The append that needs the segment will try again and tell its caller.
			h.failed = position{segment: tail.id, off: end}
			l.opts.Logger.Warn("wal: could not prepare a segment ahead", "err", err)
		}
		if created {
			return true
		}
	}
	if next := l.peekNext(); wanted && l.zeroPiece(next) {
		return l.syncZeros(next)
	}
	return l.clean()
}

// prepareAhead makes the segment after the tail, if there is none, or else the reserve.
func (l *Log) prepareAhead() (created bool, err error) {
	l.prepareMu.Lock()
	defer l.prepareMu.Unlock()
	if len(l.ready) > 0 {
		return l.makeReserve()
	}
	return l.prepare()
}

// prepare makes one more segment after the tail, of a spare unless that is the reserve. prepareMu is held.
func (l *Log) prepare() (created bool, err error) {
	if len(l.spares) > 1 {
		return true, l.prepareFrom(l.recycle)
	}
	return true, l.prepareFrom(func(id uint64) (*segment, error) { return l.createSegment(id, l.opts.SegmentBytes, 0) })
}

// prepareFrom makes one more segment by make. prepareMu is held.
func (l *Log) prepareFrom(make func(id uint64) (*segment, error)) error {
	s, err := make(l.lastID + 1)
	if err != nil {
		return err
	}
	l.lastID++
	l.ready = append(l.ready, s)
	return nil
}

// takeNext hands over the segment after the tail, or makes one: findRoom did, except in a recovery. mu is held.
func (l *Log) takeNext() (*segment, error) {
	s, err := l.readySegment(0, true)
	if err != nil {
		return nil, err
	}
	l.prepareMu.Lock()
	defer l.prepareMu.Unlock()
	l.ready = l.ready[1:]
	return s, nil
}

func (l *Log) peekNext() *segment {
	l.prepareMu.Lock()
	defer l.prepareMu.Unlock()
	if len(l.ready) == 0 {
		return nil
	}
	return l.ready[0]
}

var zeros = vfs.Blocks(zeroPieceBytes)

// zeroPiece zero-fills one piece of s. It reports false when there is nothing to fill, or no way. What it does to the tail is
// made durable by the next append's sync: one of its own would keep that one waiting.
func (l *Log) zeroPiece(s *segment) bool {
	if s == nil {
		return false
	}
	n, err := s.writeZeros()
	if isFull(err) {
		return false // the zeros were a favour
	}
	if err != nil {
		_ = l.fail("zero-fill", s, s.zeroed.Load(), err) // the next Append or Sync returns it
		return false
	}
	if n == 0 {
		return false
	}
	l.stats.zeroedBytes.Add(uint64(n))
	return true
}

// syncZeros makes the zeros of the next segment durable, before it is the tail and somebody waits.
func (l *Log) syncZeros(s *segment) bool {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if err := s.file.Sync(); err != nil {
		_ = l.fail("sync after zero-fill", s, 0, err)
		return false
	}
	return true
}

// writeZeros fills the next piece, and returns its length in bytes.
func (s *segment) writeZeros() (int64, error) {
	s.zeroMu.Lock()
	defer s.zeroMu.Unlock()
	from := s.zeroed.Load()
	n := min(zeroPieceBytes, s.size-from)
	if n <= 0 {
		return 0, nil
	}
	if _, err := s.writeAt(zeros[:n], from); errors.Is(err, syscall.EINVAL) && s.head.direct {
		return 0, nil // the next append will find out, and turn to the page cache
	} else if err != nil {
		return 0, err
	}
	s.zeroed.Store(from + n)
	return n, nil
}

// grow makes room for a record larger than a segment.
func (s *segment) grow(size int64) error {
	size = (size + s.block() - 1) &^ (s.block() - 1)
	s.zeroMu.Lock() // the zero-filler reads size
	defer s.zeroMu.Unlock()
	if err := s.file.Preallocate(0, size); err != nil {
		return err
	}
	s.size = size
	return nil
}
