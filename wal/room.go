package wal

import (
	"errors"
	"syscall"
)

// Room for an append is found before its first record is encoded: the segments that it will roll over to are made, and
// large enough, so that a full disk refuses the whole append and leaves nothing of it behind. That makes ErrDiskFull
// an answer and not an end: the same append may be tried again at any time.

// isFull reports whether err says that there is no room on the disk, or none for this user.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// full is the error of an append that found no room.
func (l *Log) full(op string, bytes int64, err error) error {
	return &DiskFullError{Op: op, Dir: l.opts.Dir, Bytes: bytes, Err: err}
}

// cursor is where the next record would go, and how much room there is for it.
type cursor struct {
	end, size int64
	ahead     int // how many of the ready segments are used up
}

// fits reports whether records of so many bytes, in all, fit into the tail. mu is held.
func (l *Log) fits(bytes int64) bool {
	if l.tail.end == segmentHead {
		bytes += recordBytes(linkBytes)
	}
	return l.tail.end+bytes+recordHead <= l.tail.size
}

// findRoom makes sure that the records of an append fit, whose bytes each yields one by one. Small ones, which are to be
// written on a full disk too, may take the reserve. mu is held.
func (l *Log) findRoom(small bool, each func(yield func(bytes int64) error) error) error {
	c := cursor{end: l.tail.end, size: l.tail.size}
	return each(func(n int64) error { return l.advance(&c, n, small) })
}

// advance moves c over a record of n bytes, as makeRoom will.
func (l *Log) advance(c *cursor, n int64, small bool) error {
	if c.end > segmentHead && c.end+n+recordHead <= c.size {
		c.end += n
		return nil
	}
	s := l.tail
	if c.end > segmentHead {
		var err error
		if s, err = l.readySegment(c.ahead, small); err != nil {
			return err
		}
		c.ahead++
	}
	need := segmentHead + recordBytes(linkBytes) + n
	if need+recordHead > s.size {
		if err := s.grow(need + recordHead); isFull(err) {
			return l.full("growth of a segment for one large record", need, err)
		} else if err != nil {
			return l.fail("grow", s, s.size, err)
		}
	}
	c.end, c.size = need, s.size
	return nil
}

// readySegment returns the k-th segment after the tail, making it if need be. mu is held.
func (l *Log) readySegment(k int, small bool) (*segment, error) {
	l.prepareMu.Lock()
	defer l.prepareMu.Unlock()
	for k >= len(l.ready) {
		l.stats.segmentsWaited.Add(1)
		_, err := l.prepare()
		if isFull(err) && small && len(l.spares) > 0 {
			err = l.prepareFrom(l.recycle)
			l.starved = l.starved || err == nil
		}
		if isFull(err) {
			return nil, l.full("preparation of a segment", l.opts.SegmentBytes, err)
		}
		if err != nil {
			return nil, l.fail("preparation of the segment after that", l.tail, l.tail.end, err)
		}
	}
	return l.ready[k], nil
}

// endStarvation makes a new reserve, if the old one was used up, before more than the necessary is written. mu is held.
func (l *Log) endStarvation() error {
	l.prepareMu.Lock()
	defer l.prepareMu.Unlock()
	if !l.starved {
		return nil
	}
	if _, err := l.makeReserve(); isFull(err) {
		return l.full("preparation of the reserve segment", l.opts.SegmentBytes, err)
	} else if err != nil {
		return l.fail("preparation of the reserve segment", l.tail, l.tail.end, err)
	}
	l.starved = false
	return nil
}

// undo is what it takes to forget an append that was encoded and not written.
type undo struct {
	tail     *segment
	end      int64
	chain    uint32
	buffered int
	unmarked bool
}

func (l *Log) remember() undo {
	return undo{tail: l.tail, end: l.tail.end, chain: l.tail.chain, buffered: len(l.buf), unmarked: l.unmarked}
}

// errSealed means that a part of an append is in a segment that is sealed.
var errSealed = errors.New("wal: the append went over the end of a segment")

// takeBack forgets what was encoded since u. If a part of it may be written, zeros go over all of that, and are made durable:
// a power cut must not bring back what was refused, and no later sync would see a reason to. Zeros over the first record
// are not enough: the same record may be appended again, and the rest would follow on it. mu is held.
func (l *Log) takeBack(u undo, wrote int) error {
	if l.tail != u.tail {
		return errSealed
	}
	l.tail.end, l.tail.chain, l.unmarked = u.end, u.chain, u.unmarked
	l.buf = l.buf[:u.buffered]
	if wrote == 0 {
		return nil
	}
	return l.wipe(wrote)
}
