package wal

import (
	"errors"
	"iter"
	"slices"
	"syscall"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// Room for an append is found before its first record is encoded: the segments that it will roll over to are made, and
// large enough, so that a full disk refuses the whole append and leaves nothing of it behind. That makes ErrDiskFull
// an answer and not an end: the same append may be tried again at any time.
//
// Mostly the room is there already, since the helper works ahead. An append that lacks something lets go of Log.mu, waits for
// the helper or makes it itself, and is staged again. So nobody waits for an append that waits for the disk to make a segment.

// isFull reports whether err says that there is no room on the disk, or none for this user.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isShort reports whether err says that something is used up which may be there again later: room, or descriptors or memory
// of the process or the machine. Said of a file that holds no records yet it is no reason to stop.
func isShort(err error) bool {
	return isFull(err) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// full is the error of an append that found no room.
func (l *Log) full(op string, bytes int64, err error) error {
	return &DiskFullError{Op: op, Dir: l.opts.Dir, Bytes: bytes, Err: err}
}

// lack is what has to be made before records can be encoded: one of its fields. The zero value is nothing.
type lack struct {
	older    bool // the sync of the segment before the tail
	reserve  bool // the reserve, which was used up
	segments int  // so many segments after the tail
	small    bool // they may be made of the reserve

	large *segment // a segment that is too small for one record
	bytes int64    // that it must have
}

// cursor is where the next record would go, and how much room there is for it.
type cursor struct {
	end, size int64
	ahead     int // how many of the ready segments are used up
}

// fits reports whether records of so many bytes, in all, fit into the tail. mu is held.
func (l *Log) fits(bytes int64) bool {
	if l.tail.seg.end == record.SegmentHeaderBytes {
		bytes += record.Bytes(record.LinkBytes)
	}
	return l.tail.seg.end+bytes+record.HeaderBytes <= l.tail.seg.size
}

// lackOf returns what is missing first for records of these bytes. Small ones, which are to be written on a full disk too,
// may take the reserve. mu is held.
func (l *Log) findSpace(small bool, records iter.Seq[int64]) lack {
	c := cursor{end: l.tail.seg.end, size: l.tail.seg.size}
	for n := range records {
		if missing := l.advance(&c, n); missing != (lack{}) {
			missing.small = small && missing.segments > 0
			return missing
		}
	}
	return lack{}
}

// advance moves c over a record of n bytes, as makeRoom will. It returns what is missing for that. mu is held.
func (l *Log) advance(c *cursor, n int64) lack {
	if c.end > record.SegmentHeaderBytes && c.end+n+record.HeaderBytes <= c.size {
		c.end += n
		return lack{}
	}
	s := l.tail.seg
	if c.end > record.SegmentHeaderBytes {
		if c.ahead == 0 && l.flusher.older != nil {
			return lack{older: true}
		}
		if s = l.supply.segment(c.ahead); s == nil {
			return lack{segments: c.ahead + 1}
		}
		c.ahead++
	}
	need := record.SegmentHeaderBytes + record.Bytes(record.LinkBytes) + n
	if need+record.HeaderBytes > s.size {
		return lack{large: s, bytes: need + record.HeaderBytes}
	}
	c.end, c.size = need, s.size
	return lack{}
}

// waitFor lets go of mu until what is missing was made, by the helper or here: meanwhile others append and flush. mu is held
// before and after.
func (l *Log) waitFor(missing lack) error {
	if missing.segments > 0 {
		l.stats.segmentsWaited.Add(1)
	}
	l.mu.Unlock()
	defer l.mu.Lock()
	if missing.older {
		return l.flushOlder()
	}
	return l.obtain(missing)
}

// obtain makes what is missing, unless it was made meanwhile. mu is not held, except in a recovery.
func (l *Log) obtain(missing lack) error {
	l.supply.claim()
	defer l.supply.release()
	if l.table.closed.Load() {
		return ErrClosed
	}
	var op string
	var err error
	bytes := l.opts.SegmentBytes
	switch {
	case missing.reserve:
		op = "preparation of the reserve segment"
		err = l.endStarvation()
	case missing.large != nil:
		op, bytes = "growth of a segment for one large record", missing.bytes
		err = l.grow(missing.large, missing.bytes)
	default:
		op = "preparation of a segment"
		err = l.makeReady(missing.segments, missing.small)
	}
	switch {
	case isShort(err) && l.failure() == nil:
		return l.full(op, bytes, err)
	case err != nil:
		return l.failAt(op, l.opts.Dir, 0, err)
	}
	return nil
}

// makeReady makes segments after the tail until there are n. The caller has claimed it.
func (l *Log) makeReady(n int, small bool) error {
	for l.supply.segment(n-1) == nil {
		err := l.prepare()
		if isFull(err) && small && l.supply.hasSpare() {
			if err = l.prepareFrom(l.recycle); err == nil {
				l.supply.starved.Store(true)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// endStarvation makes a new reserve, if the old one was used up, before more than the necessary is written. The caller has
// claimed it.
func (l *Log) endStarvation() error {
	if !l.supply.starved.Load() {
		return nil
	}
	if _, err := l.makeReserve(); err != nil {
		return err
	}
	l.supply.starved.Store(false)
	return nil
}

// grow makes room for a record larger than a segment. The caller has claimed it, and the segment holds no records.
func (l *Log) grow(s *segment, size int64) error {
	size = (size + vfs.BlockBytes - 1) &^ (vfs.BlockBytes - 1)
	if err := s.reserve(size); err != nil {
		return err
	}
	if err := l.syncSegment(s); err != nil { // so that no crash leaves a record in a file that is too short for it: checkEnd
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.size = max(s.size, size)
	return nil
}

// undo is what it takes to forget an append that was encoded and not written.
type undo struct {
	tail     *segment
	end      int64
	chain    uint32
	sealed   record.End
	durable  position
	older    *segment
	buffered int
	idling   idling
}

// remember begins what may be taken back. mu is held.
func (l *Log) remember() undo {
	l.coolSealed()
	return undo{tail: l.tail.seg, end: l.tail.seg.end, chain: l.tail.seg.chain, sealed: l.tail.sealed, durable: l.flusher.durable, older: l.flusher.older, buffered: len(l.tail.buf), idling: l.tail.idling}
}

// errSealed means that a part of an append is in a segment that is sealed and synced.
var errSealed = errors.New("wal: the append went over the end of two segments")

// takeBack forgets what was encoded since u. If a part of it may be written, zeros go over all of that, and are made durable:
// a power cut must not bring back what was refused, and no later sync would see a reason to. Zeros over the first record
// are not enough: the same record may be appended again, and the rest would follow on it. mu is held.
func (l *Log) takeBack(u undo, wrote int) error {
	if l.tail.seg != u.tail {
		return l.unroll(u, wrote)
	}
	l.tail.seg.end, l.tail.seg.chain, l.tail.idling = u.end, u.chain, u.idling
	l.tail.buf = l.tail.buf[:u.buffered]
	if wrote == 0 {
		return nil
	}
	return l.wipe(wrote)
}

// unroll is takeBack for an append that went on in the next segment, the first part of which stands in the one that was sealed.
// The next one is made empty first, and is ready again. mu was held all the time, so nobody has seen the roll. mu is held.
func (l *Log) unroll(u undo, wrote int) error {
	if l.tail.sealed.Segment != u.tail.id || u.older != nil {
		return errSealed
	}
	next, reached := l.tail.seg, u.tail.end
	next.end, next.chain = record.SegmentHeaderBytes, next.head.CRC
	l.tail.buf = l.tail.buf[:record.SegmentHeaderBytes-l.tail.bufAt] // what startBuffer put there
	if wrote > 0 {
		if err := l.wipe(wrote); err != nil {
			return err
		}
	}
	l.table.dropSegment(next.id)
	l.supply.mu.Lock()
	l.supply.ready = slices.Insert(l.supply.ready, 0, next)
	l.supply.mu.Unlock()

	l.tail.seg, l.tail.sealed, l.flusher.durable, l.tail.idling = u.tail, u.sealed, u.durable, u.idling
	l.flusher.older, l.tail.sealedSynced = nil, nil
	l.tail.seg.end, l.tail.seg.chain = u.end, u.chain
	if err := l.startBuffer(l.tail.seg); err != nil {
		return err
	}
	return l.wipe(int(reached - l.tail.bufAt))
}
