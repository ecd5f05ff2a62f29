package wal

import (
	"fmt"

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

// RunOnce does one of: zero-fill a piece of the tail, create the next segment, zero-fill a piece of the next.
func (h *helper) RunOnce() (more bool) {
	l := h.log
	if l.failure() != nil {
		return false
	}
	l.mu.Lock()
	tail, end, wanted := l.tail, l.tail.end, l.pace.wantsZeros()
	l.mu.Unlock()
	if wanted && l.zeroPiece(tail) {
		return true
	}
	if h.failed.segment != tail.id || end >= h.failed.off+zeroPieceBytes {
		created, err := l.prepareNext()
		if err != nil {
			// The append that needs the segment will try again and tell its caller.
			h.failed = position{segment: tail.id, off: end}
			l.opts.Logger.Warn("wal: could not prepare a segment ahead", "err", err)
		}
		if created {
			return true
		}
	}
	next := l.peekNext()
	return wanted && l.zeroPiece(next) && l.syncZeros(next)
}

// prepareNext creates the segment after the tail, if there is none.
func (l *Log) prepareNext() (created bool, err error) {
	l.prepareMu.Lock()
	defer l.prepareMu.Unlock()
	if l.next != nil {
		return false, nil
	}
	s, err := l.createNext()
	if err != nil {
		return false, err
	}
	l.next = s
	return true, nil
}

// createNext makes a segment with the next id. prepareMu is held.
func (l *Log) createNext() (*segment, error) {
	s, err := l.createSegment(l.lastID+1, l.opts.SegmentBytes, 0)
	if err != nil {
		return nil, err
	}
	l.lastID++
	return s, nil
}

// takeNext hands over the prepared segment, or makes one if the helper was late. mu is held.
func (l *Log) takeNext() (*segment, error) {
	l.prepareMu.Lock()
	defer l.prepareMu.Unlock()
	if s := l.next; s != nil {
		l.next = nil
		return s, nil
	}
	l.stats.segmentsWaited.Add(1)
	s, err := l.createNext()
	if err != nil {
		return nil, l.fail("preparation of the segment after that", l.tail, l.tail.end, fmt.Errorf("%d bytes: %w", l.opts.SegmentBytes, err))
	}
	return s, nil
}

func (l *Log) peekNext() *segment {
	l.prepareMu.Lock()
	defer l.prepareMu.Unlock()
	return l.next
}

var zeros = vfs.Blocks(zeroPieceBytes)

// zeroPiece zero-fills one piece of s. It reports false when there is nothing to fill, or no way. What it does to the tail is
// made durable by the next append's sync: one of its own would keep that one waiting.
func (l *Log) zeroPiece(s *segment) bool {
	if s == nil {
		return false
	}
	n, err := s.writeZeros()
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
	if _, err := s.writeAt(zeros[:n], from); err != nil {
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
