package wal

import (
	"errors"

	"github.com/millrace/millrace/wal/record"
)

// This file is the helper, which keeps the append path free of everything but data: it makes the next
// segment before the tail is full, writes zeros ahead of the records (zeros.go), and frees old segments.

// helper is the env.Worker of a Log.
type helper struct {
	log *Log
	// failed is where the tail stood when a segment could not be prepared. The helper tries again when the
	// tail has grown by a piece. Otherwise it would ask a full disk, and log the answer, at every sync.
	failed position
	// unnoted is the tail for which FENCE found no space. The helper does not try again for the same tail.
	unnoted uint64
}

// wakeHelper wakes the helper. During recovery there is none yet; Open wakes it.
func (l *Log) wakeHelper() {
	if l.helper != nil {
		l.helper.Wake()
	}
}

// RunOnce writes a watermark record if one is due, and does the first of these that is due. It makes a
// sealed segment cold, or makes the next segment or the reserve. It zero-fills a piece of a segment. It
// frees a segment, or moves a piece out of one.
func (h *helper) RunOnce() (more bool) {
	l := h.log
	if l.failure() != nil {
		return false
	}
	if l.flusher.due.Swap(false) {
		return l.syncNow() == nil // an error is final: the next Append returns it
	}
	if l.idle.due.Swap(false) {
		l.writeIdleWatermark()
	}
	l.mu.Lock()
	tail, end := l.tail.seg, l.tail.seg.end
	l.mu.Unlock()
	if s := l.supply.nextToCool(); s != nil {
		l.makeCold(s)
		return true
	}
	if h.failed.segment != tail.id || end >= h.failed.off+zeroPieceBytes {
		created, err := l.prepareAhead()
		if err != nil {
			// The append that needs the segment will try again and tell its caller.
			if h.failed.segment != tail.id { // once a tail, not once a piece
				l.opts.Logger.Warn("wal: could not prepare a segment ahead", "err", err)
			}
			h.failed = position{segment: tail.id, off: end}
		}
		if created {
			return true
		}
	}
	if h.noteTail(tail) {
		return true
	}
	if l.zeroAhead() {
		return true
	}
	return l.clean()
}

// noteTail notes in FENCE, after a roll, that the log reaches into the tail. Without that, if the tail and
// the prepared segments vanished, the log would look as if it ended with the segment before.
func (h *helper) noteTail(tail *segment) (noted bool) {
	l := h.log
	if h.unnoted == tail.id || l.opts.Mode.Kind == KindMemory || l.fenceReaches(tail.id) {
		return false
	}
	err := l.editFence(func(f *fence) {
		f.end = record.End{Segment: tail.id, Offset: record.SegmentHeaderBytes, Chain: tail.head.CRC}
	})
	switch {
	case isFull(err): // where nothing is overwritten in place
		h.unnoted = tail.id
		l.opts.Logger.Warn("wal: no space to note in FENCE that the log reaches into a new segment", "file", tail.path, "err", err)
		return false
	case err != nil:
		_ = l.failAt("write", l.dir.fencePath(), 0, err) // the next Append or Sync returns it
		return false
	}
	return true
}

// prepareAhead makes the segment after the tail or, if there is one, the reserve. If entries wait for the
// reserve, it comes first: the segment could take the last space, while the tail has space for them.
func (l *Log) prepareAhead() (created bool, err error) {
	l.supply.claim()
	defer l.supply.release()
	if l.supply.starved.Load() {
		return true, l.endStarvation()
	}
	if l.supply.segment(0) != nil {
		return l.makeReserve()
	}
	return true, l.prepare()
}

// prepare makes one more segment after the tail, of a spare unless that is the reserve. The caller holds
// the claim.
func (l *Log) prepare() error {
	for l.supply.spareCount.Load() > 1 {
		if err := l.prepareFrom(l.recycle); !errors.Is(err, errUnfit) {
			return err
		}
	}
	return l.prepareFrom(func(id uint64) (*segment, error) { return l.createSegment(id, l.opts.SegmentBytes, 0) })
}

// prepareFrom makes one more segment with create. The caller holds the claim.
func (l *Log) prepareFrom(create func(id uint64) (*segment, error)) error {
	l.supply.mu.Lock()
	id := l.supply.lastID + 1
	l.supply.mu.Unlock()
	s, err := create(id)
	if err != nil {
		return err
	}
	l.supply.mu.Lock()
	defer l.supply.mu.Unlock()
	l.supply.lastID = id
	l.supply.ready = append(l.supply.ready, s)
	return nil
}

// takeNext hands over the segment after the tail. findSpace has made sure that there is one. Only a
// recovery makes it here; no other goroutine has the log then. mu is held.
func (l *Log) takeNext() (*segment, error) {
	if l.supply.segment(0) == nil {
		if err := l.obtain(lack{segments: 1, small: true}); err != nil {
			return nil, err
		}
	}
	return l.supply.take(), nil
}
