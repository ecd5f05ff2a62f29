package wal

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/vfs"
)

// This file is the helper's zero-filler. It writes zeros ahead of the records, so that every block of a
// segment is written before the segment is the tail.
//
// Zeros matter where blocks were allocated but never written. There each write has to change extents, and
// an fdatasync has to commit that to the filesystem's journal. Into written blocks an fdatasync commits
// nothing. A batch of 100 KiB takes 120 us there and 211 us otherwise (decision 0004).
//
// A segment that is made of a spare is written already (spare.go). So zeros are for a log that is young, or
// that grows. They are written at the pace of the log and not faster: the next segment is written to its end
// when the records fill two thirds of the tail. An idle log gets no zeros. The tail gets zeros only if it was
// not ready in time: the first one, the one of an Open, and one that the log reached too soon.
//
// The disk is for appends:
//
//   - The helper rests after a piece as long as the piece took. It has the disk for half of the time at most.
//   - It gives up, for this tail, if the log itself needs more than half of the bandwidth that the helper
//     finds. Zeros would take from the appends what they need, and not keep up. The helper looks again at the
//     next tail, and after further misses at every second, fourth, … 32nd.
//
// The sync at the end makes the zeros durable before appends wait for a sync of that segment. Nothing
// depends on zeros but speed: after a power cut they may be there in any part. A recovery removes segments
// without records, and stale bytes in the others are no valid records (wal/record/format.go).

const (
	// zeroPieceBytes bounds one piece of the helper's work. A piece is a 64th of a segment at most.
	zeroPieceBytes = 1 << 20
	// tailLead is how many pieces of a young tail are filled ahead of its records.
	tailLead = 4
	// samplePieces is after how many pieces the zeros are synced, and judged by the time that they took.
	samplePieces = 4
	// maxZeroPause bounds the number of tails, as a power of two, for which a disk without time gets no
	// zeros.
	maxZeroPause = 5
)

// zeroFiller says when the next zeros are due. Its fields are the helper's, except for wakeAt.
type zeroFiller struct {
	wakeAt atomic.Int64 // the end of the tail's records at which the helper has zeros to write

	timer  env.Timer     // wakes the helper after a rest; nil in ModeMemory
	rested time.Duration // no zeros before this time
	resume uint64        // no zeros before this segment is the tail
	misses int           // samples in a row for which the disk had no time

	sample zeroSample
}

// zeroSample is a few pieces of zeros, and what the disk did while they were written.
type zeroSample struct {
	seg      *segment
	bytes    int64
	took     time.Duration // by the writes and the sync
	pace     float64       // of the fastest piece, in bytes a nanosecond
	began    time.Duration
	appended uint64 // Stats.AppendedBytes then
}

// add counts a piece.
func (s *zeroSample) add(bytes int64, took time.Duration) {
	s.bytes += bytes
	s.took += took
	s.pace = max(s.pace, float64(bytes)/float64(took)) // +Inf on a disk that takes no time
}

// hurts reports whether the log keeps the disk busy for more than half of the time in which it has it for
// itself. appended is Stats.AppendedBytes at the end of the sample, which is now. The disk's pace is that of
// the fastest piece: on a busy machine the others wait for the processor. The time that zeros took is left
// out, because they slow down a log that waits for its disk.
func (s *zeroSample) hurts(appended uint64, now time.Duration) bool {
	return 2*float64(appended-s.appended)/s.pace > float64(now-s.began-s.took)
}

// pieceBytes is the size of a piece of zeros in a log with segments of this size.
func pieceBytes(segmentBytes int64) int64 {
	return min(zeroPieceBytes, max(vfs.BlockBytes, segmentBytes/64&^blockMask))
}

// tailGoal is how far a tail of this size should be written when its records end at end.
func tailGoal(end, size, piece int64) int64 { return min(size, roundUp(end)+tailLead*piece) }

// nextGoal is how far the segment after the tail should be written then.
func nextGoal(end, size, piece int64) int64 { return min(size, roundUp(end+end/2)+piece) }

// roundUp rounds up to a block.
func roundUp(n int64) int64 { return (n + blockMask) &^ blockMask }

// zeroAhead writes a piece of zeros where one is due. It reports whether it did.
func (l *Log) zeroAhead() (more bool) {
	z := &l.zeros
	if z.timer == nil {
		return false // memory
	}
	l.mu.Lock()
	tail, end, size := l.tail.seg, l.tail.seg.end, l.tail.seg.size
	l.mu.Unlock()
	l.stats.tailYoung.Store(tail.zeroed.Load() < size)
	s, limit, wakeAt := l.dueZeros(tail, end, size)
	if tail.id < z.resume { // a roll wakes the helper
		s, wakeAt = nil, math.MaxInt64
	}
	if l.supply.segment(0) == nil {
		wakeAt = min(wakeAt, end+zeroPieceBytes) // the helper tries again to make one
	}
	if s == nil {
		z.wakeAt.Store(wakeAt)
		return false
	}
	if now := l.opts.Clock.Now(); now < z.rested {
		z.wakeAt.Store(math.MaxInt64)
		z.timer.Set(z.rested - now)
		return false
	}
	return l.zeroPiece(s, limit, tail)
}

// dueZeros returns the segment that lacks zeros, with its size, or nil and how long the tail is when one
// will. A whole piece is due as soon as a block of it is: otherwise the helper would wake for each block. The
// next segment comes first: a helper that is late fills a young tail only when the tail after it will not be
// young.
func (l *Log) dueZeros(tail *segment, end, size int64) (s *segment, limit, wakeAt int64) {
	piece := pieceBytes(l.opts.SegmentBytes)
	wakeAt = math.MaxInt64
	if next, size := l.peekNext(); next != nil {
		zeroed := next.zeroed.Load()
		if zeroed < nextGoal(end, size, piece) {
			return next, size, 0
		}
		if zeroed < size {
			wakeAt = (zeroed-piece)*2/3 + 1 // or sooner
		}
	}
	zeroed := tail.zeroed.Load()
	if zeroed < tailGoal(end, size, piece) {
		return tail, size, 0
	}
	if zeroed < size {
		wakeAt = min(wakeAt, zeroed-tailLead*piece+1)
	}
	return nil, 0, wakeAt
}

// peekNext returns the segment after the tail, with its size, or nil.
func (l *Log) peekNext() (s *segment, size int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s = l.supply.segment(0); s != nil {
		size = s.size
	}
	return s, size
}

var zeros = vfs.Blocks(zeroPieceBytes)

// zeroPiece zero-fills one piece of s, which is the tail or the segment after it, and ends a sample. It
// reports false if there is no way to fill it. The next append's sync makes zeros in the tail durable: a sync
// of their own would delay that one.
func (l *Log) zeroPiece(s *segment, limit int64, tail *segment) bool {
	z, clock := &l.zeros, l.opts.Clock
	before := clock.Now()
	if z.sample.seg != s {
		z.sample = zeroSample{seg: s, began: before, appended: l.stats.appendedBytes.Load()}
	}
	n, err := s.writeZeros(limit, pieceBytes(l.opts.SegmentBytes))
	if err != nil && !isFull(err) {
		_ = l.fail("zero-fill", s, s.zeroed.Load(), err) // the next Append or Sync returns it
		return false
	}
	if n == 0 || err != nil { // the zeros were a favour
		z.resume = tail.id + 1
		return false
	}
	l.stats.zeroedBytes.Add(uint64(n))
	ends := s.zeroed.Load() >= s.head.Size || z.sample.bytes+n >= samplePieces*pieceBytes(l.opts.SegmentBytes)
	if (ends || s.block() == 1) && s != tail && !l.syncZeros(s) {
		z.resume = tail.id + 1
		return false
	}
	now := clock.Now()
	z.sample.add(n, now-before)
	z.rested = now + (now - before)
	if ends {
		l.judgeSample(now, tail)
	}
	return true
}

// judgeSample ends a sample, and decides whether the disk has time for another one.
func (l *Log) judgeSample(now time.Duration, tail *segment) {
	z := &l.zeros
	if z.sample.hurts(l.stats.appendedBytes.Load(), now) {
		z.resume = tail.id + 1<<min(z.misses, maxZeroPause)
		z.misses++
	} else {
		z.misses = 0
	}
	z.sample = zeroSample{}
}

// syncZeros makes the zeros of the next segment durable, before it is the tail and appends wait for its
// sync. It reports whether it did. A filesystem that finds space late tells here that there is none. That
// loses zeros only, as long as no append has reached the segment.
func (l *Log) syncZeros(s *segment) bool {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	err := s.sync()
	if err != nil && (!isFull(err) || s.reached.Load()) {
		_ = l.fail("sync after zero-fill", s, 0, err)
	}
	return err == nil
}
