package wal

import (
	"errors"
	"iter"
	"slices"
	"syscall"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// Space for an append is found before its first record is encoded: the segments that it will roll over to
// are made, and large enough. So a full disk refuses the whole append and leaves nothing of it behind, and
// ErrDiskFull is not final: the same append may be tried again at any time.
//
// Usually the space is there already, because the helper works ahead. An append that lacks something
// releases Log.mu, waits for the helper or makes it itself, and is planned again. So other appends and
// flushes do not wait for a segment to be made.

// isFull reports whether err says that there is no space on the disk, or none for this user.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// isShort reports whether err says that something is used up that may be available again later: space, or
// descriptors or memory of the process or the machine. For a file that holds no records yet, such an error
// does not stop the log.
func isShort(err error) bool {
	return isFull(err) || vfs.IsShort(err)
}

// full returns the error of an append that found no space.
func (l *Log) full(op string, bytes int64, err error) error {
	return &DiskFullError{Op: op, Dir: l.opts.Dir, Bytes: bytes, Err: err}
}

// lack is what has to be made before records can be encoded: one of its fields. The zero value means
// nothing.
type lack struct {
	older    bool // the sync of the segment before the tail
	reserve  bool // the reserve, which was used up
	segments int  // the number of segments that must be ready after the tail
	small    bool // they may be made of the reserve

	large *segment // a segment that is too small for one record
	bytes int64    // that it must have
}

// writePoint is where the next record would go, and how much space there is for it.
type writePoint struct {
	end, size int64
	ahead     int // how many of the ready segments are used up
}

// fits reports whether records of this many bytes, in all, fit into the tail. mu is held.
func (l *Log) fits(bytes int64) bool {
	if l.tail.seg.end == record.SegmentHeaderBytes {
		bytes += record.Bytes(record.LinkBytes)
	}
	return l.tail.seg.end+bytes+record.HeaderBytes <= l.tail.seg.size
}

// findSpace returns the first thing that is missing before records of these sizes can be written. Small
// records, which must be writable on a full disk, may use the reserve. mu is held.
func (l *Log) findSpace(small bool, records iter.Seq[int64]) lack {
	c := writePoint{end: l.tail.seg.end, size: l.tail.seg.size}
	for n := range records {
		if missing := l.advance(&c, n); missing != (lack{}) {
			missing.small = small && missing.segments > 0
			return missing
		}
	}
	return lack{}
}

// advance moves c over a record of n bytes, as ensureSpace will. It returns what is missing for that. mu is
// held.
func (l *Log) advance(c *writePoint, n int64) lack {
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

// waitFor releases mu until what is missing was made, by the helper or here. Meanwhile others append and
// flush. mu is held before and after.
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

// makeReady makes segments after the tail until there are n. The caller holds the claim.
func (l *Log) makeReady(n int, small bool) error {
	for l.supply.segment(n-1) == nil {
		err := l.prepare()
		if isFull(err) && small && l.supply.hasSpare() {
			err = l.prepareFromReserve(err)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// prepareFromReserve makes a segment of the reserve, because the disk is full, as err says. If the reserve
// cannot be used either, err stays the reason. Entries wait for a new reserve in any case. The caller holds
// the claim.
func (l *Log) prepareFromReserve(err error) error {
	used := l.prepareFrom(l.recycle)
	if used == nil || errors.Is(used, errUnfit) {
		l.supply.starved.Store(true)
	}
	if errors.Is(used, errUnfit) {
		return err
	}
	return used
}

// endStarvation makes a new reserve if the old one was used up, before entries are written again. The
// caller holds the claim.
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

// grow enlarges a segment for a record larger than a segment. The caller holds the claim, and the segment
// holds no records.
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

// undo is the state to which an append that was encoded and not written is taken back.
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

// begin begins an append of this many bytes. It removes what a refused one has left. It returns the state to
// which this one may be taken back. mu is held.
func (l *Log) begin(bytes int64) (undo, error) {
	switch err := l.wipe(); {
	case isFull(err):
		return undo{}, l.full("removal of what a refused append has left", bytes, err)
	case err != nil:
		return undo{}, l.fail("wipe", l.tail.seg, l.tail.bufAt, err)
	}
	l.coolSealed()
	return undo{tail: l.tail.seg, end: l.tail.seg.end, chain: l.tail.seg.chain, sealed: l.tail.sealed, durable: l.flusher.durable, older: l.flusher.older, buffered: len(l.tail.buf), idling: l.tail.idling}, nil
}

// errSealed means that a part of an append is in a segment that is sealed and synced.
var errSealed = errors.New("wal: the append filled two segments")

// takeBack forgets what was encoded since u. If a part of it may be written, zeros go over all of it and
// are made durable: a power cut must not bring back what was refused, and no later sync would have a reason
// to. Zeros over the first record are not enough: the same record may be appended again, and the rest would
// follow it. If the disk refuses the zeros, too, they are due before the next append (wipe.go). mu is held.
func (l *Log) takeBack(u undo, wrote int) error {
	if l.tail.seg != u.tail {
		return l.unroll(u, wrote)
	}
	l.tail.seg.end, l.tail.seg.chain, l.tail.idling = u.end, u.chain, u.idling
	l.tail.buf = l.tail.buf[:u.buffered]
	if wrote == 0 {
		return nil
	}
	l.leave(wrote)
	return l.tryWipe()
}

// tryWipe is wipe where a full disk is no error.
func (l *Log) tryWipe() error {
	if err := l.wipe(); !isFull(err) {
		return err
	}
	return nil
}

// unroll is takeBack for an append that rolled over, whose first part is in the sealed segment. The next
// segment is ready again. It is wiped first: without its end a write counts for nothing. mu was held all the
// time, so no other goroutine has seen the roll. mu is held.
func (l *Log) unroll(u undo, wrote int) error {
	if l.tail.sealed.Segment != u.tail.id || u.older != nil {
		return errSealed
	}
	next, reached := l.tail.seg, u.tail.end
	next.end, next.chain = record.SegmentHeaderBytes, next.head.CRC
	l.tail.buf = l.tail.buf[:record.SegmentHeaderBytes-l.tail.bufAt] // what startBuffer put there
	if wrote > 0 {
		l.leave(wrote)
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
	l.leave(int(reached - l.tail.bufAt))
	return l.tryWipe()
}
