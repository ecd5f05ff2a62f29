package wal

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/wal/record"
)

// A watermark protects what stands before it: spoiled there, the log is corrupt, and not torn. But a watermark comes with the next
// record, and on a quiet group there is none for hours; the last record then is often a vote. So when nothing has come for
// idleDelay after a flush, the helper writes a mark: one block, and no sync, since the process may die and the bit may flip
// without any power cut. It is the flush's own watermark, late, and promises nothing new.
//
// Invariant: a mark is never a reason for a flush. It is durable with what is appended next, or when the segment is sealed.
//
// Rejected: a timer for each append (nearly all of them would find that another append has come), and a mark with each flush
// (a block more to write for each, of which all but the last are of no use).

// idleDelay is how long after a flush the mark is written, at least, and at most twice that.
const idleDelay = 5 * time.Millisecond

// idling says whether a mark is due. All of it is under Log.mu.
type idling struct {
	watermark int64    // the watermark of the tail's last record, as an offset in the tail
	dataEnd   int64    // after the tail's last record that is not a mark
	quiet     position // after a mark before which everything was durable

	armed bool // a call of markIdle is under way
	again bool // and another flush was done since
}

// idleTimer wakes the helper when a watermark record may be due.
type idleTimer struct {
	due   atomic.Bool // for the helper
	timer env.Timer   // sets due; nil in ModeMemory, and during a recovery
}

// unmarked reports whether something was written that no watermark on disk covers. mu is held.
func (l *Log) watermarkDirty() bool { return l.tail.idling.watermark < l.tail.idling.dataEnd }

// pending returns how many bytes a flush would make durable; 0 if all that is not durable is a mark. mu is held.
func (l *Log) pending() int64 {
	if end := (position{segment: l.tail.seg.id, off: l.tail.seg.end}); end == l.flusher.durable || end == l.tail.idling.quiet {
		return 0
	}
	return l.bytesUntil(position{segment: l.tail.seg.id, off: l.tail.seg.end})
}

// markLater has the helper look, after a while, whether the flush that was just done needs a mark. mu is held.
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

// markIdle writes a mark if the log is idle. If more has been appended, the flush of that asks again.
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
	nothingElse, before := l.pending() == 0, l.remember()
	l.putRecord(record.Header{Kind: record.KindWatermark, Index: l.generation}, nil)
	if l.writeOut(before, record.HeaderBytes) != nil {
		return // the disk is full, or the log has failed and the next Append or Sync says so
	}
	if nothingElse {
		i.quiet = position{segment: l.tail.seg.id, off: l.tail.seg.end}
	}
	l.stats.idleWatermarks.Add(1)
}
