package wal

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/wal/record"
)

// A watermark protects what is before it: damage there is corruption and not a torn tail. But a
// watermark comes with the next record. On a quiet log the next record may come after hours, and the last
// one is often a vote. So when nothing is appended for idleDelay after a flush, the helper writes a
// watermark record: one block and no sync, since a bit may flip in a process that dies without a power cut.
// The record says late what the flush made true, and promises nothing new.
//
// Invariant: a watermark record is never a reason for a flush. It becomes durable with the next append, or
// when the segment is sealed.
//
// Rejected: a timer for each append (nearly all of them would find that another append has come), and a
// watermark record with each flush (one more block to write each time, of which all but the last are
// useless).

// idleDelay is the least time between a flush and the watermark record. The time is at most twice that.
const idleDelay = 5 * time.Millisecond

// idling says whether a watermark record is due. Under Log.mu.
type idling struct {
	watermark int64    // the watermark of the tail's last record, as an offset in the tail
	dataEnd   int64    // after the tail's last record that is not a watermark record
	quiet     position // after a watermark record before which everything was durable

	armed bool // a call of writeIdleWatermark is under way
	again bool // and another flush was done since
}

// idleTimer wakes the helper when a watermark record may be due.
type idleTimer struct {
	due   atomic.Bool // for the helper
	timer env.Timer   // sets due; nil in ModeMemory, and during a recovery
}

// watermarkDirty reports whether something was written that no watermark on disk covers. mu is held.
func (l *Log) watermarkDirty() bool { return l.tail.idling.watermark < l.tail.idling.dataEnd }

// pending returns how many bytes a flush would make durable. It is 0 if only a watermark record is not
// durable. mu is held.
func (l *Log) pending() int64 {
	if end := (position{segment: l.tail.seg.id, off: l.tail.seg.end}); end == l.flusher.durable || end == l.tail.idling.quiet {
		return 0
	}
	return l.bytesUntil(position{segment: l.tail.seg.id, off: l.tail.seg.end})
}

// scheduleWatermark lets the helper look, after a while, whether the last flush needs a watermark record.
// mu is held.
func (l *Log) scheduleWatermark() {
	if l.idle.timer == nil || l.tail.idling.watermark >= min(l.watermark(), l.tail.idling.dataEnd) {
		return
	}
	if l.tail.idling.armed {
		l.tail.idling.again = true
		return
	}
	l.tail.idling.armed = true
	l.idle.timer.Set(idleDelay)
}

// writeIdleWatermark writes a watermark record if the log is idle. If more was appended meanwhile, the
// flush of that asks again.
func (l *Log) writeIdleWatermark() {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := &l.tail.idling
	again := i.again
	i.armed, i.again = false, false
	flushComes := l.flusher.inFlight > 0 || l.flusher.waiting.appends > 0 && !l.opts.Mode.Unsafe()
	if l.unusable() != nil || flushComes || i.watermark >= min(l.watermark(), i.dataEnd) || l.tail.seg.end+record.HeaderBytes > l.tail.seg.size {
		return
	}
	if again {
		i.armed = true
		l.idle.timer.Set(idleDelay)
		return
	}
	nothingElse := l.pending() == 0
	before, err := l.begin(record.HeaderBytes)
	if err != nil {
		return // as below
	}
	l.putRecord(record.Header{Kind: record.KindWatermark, Index: l.generation}, nil)
	if l.writeOut(before, record.HeaderBytes) != nil {
		return // the disk is full, or the log has failed and the next Append or Sync says so
	}
	if nothingElse {
		i.quiet = position{segment: l.tail.seg.id, off: l.tail.seg.end}
	}
	l.stats.idleWatermarks.Add(1)
}
