package wal

import (
	"fmt"

	"github.com/millrace/millrace/wal/record"
)

// A roll does not wait for the disk. The sealed segment becomes the older of two that are not synced, and
// the next flush syncs both, the older one first. At most two segments are unsynced: before the log rolls
// over again, the older one is synced.
//
// So a link does not say that the segment before it was durable. The watermarks do: a record that is
// written while the older segment is unsynced has the watermark 0, and any other has at least 64. For a
// crash that means (scan.go):
//
//   - If a header in the last segment has a watermark of 64 or more, or if a later segment holds records,
//     the segment before was synced to its end. If it does not end as the link says, that is corruption.
//   - Otherwise nothing behind the older segment's watermarks was ever reported as durable. If the segment
//     ends as the link says, both are accepted. If not, it is the tail, torn, and the last segment goes
//     with the torn part.
//
// Invariant: what is in the tail is durable only if all of the older segment is.

// watermark returns what the next record may report as durable: an offset in the tail, or 0 while the older
// segment is not synced. mu is held.
func (l *Log) watermark() int64 {
	if l.flusher.durable.segment != l.tail.seg.id {
		return 0
	}
	return l.flusher.durable.off
}

// bytesUntil returns how many bytes stand between the durable position and a later one. mu is held.
func (l *Log) bytesUntil(p position) int64 {
	if l.flusher.durable.segment == p.segment {
		return p.off - l.flusher.durable.off
	}
	return l.tail.sealed.Offset - l.flusher.durable.off + p.off - record.SegmentHeaderBytes
}

// flushOlder syncs the older segment, if there is one, for an append that has to roll over again. mu is not
// held.
func (l *Log) flushOlder() error {
	l.flusher.mu.Lock()
	defer l.flusher.mu.Unlock()
	l.mu.Lock()
	s := l.flusher.older
	l.mu.Unlock()
	if s == nil {
		return l.failure()
	}
	if err := l.syncSegment(s); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.olderSynced(s)
	return nil
}

// syncOlder is flushOlder for a caller that holds mu.
func (l *Log) syncOlder() error {
	s := l.flusher.older
	if s == nil {
		return nil
	}
	if err := l.syncSegment(s); err != nil {
		return err
	}
	l.olderSynced(s)
	return nil
}

// coolSealed lets the segment become cold that was durable when it was sealed: its roll cannot be taken
// back any more. mu is held.
func (l *Log) coolSealed() {
	if l.tail.sealedSynced != nil {
		l.supply.coolLater(l.tail.sealedSynced)
		l.tail.sealedSynced = nil
	}
}

// olderSynced notes that s was synced after it was sealed. mu is held.
func (l *Log) olderSynced(s *segment) {
	if l.flusher.older != s {
		return // a roll has done it meanwhile
	}
	l.flusher.older = nil
	l.supply.coolLater(s)
	l.wakeHelper()
	l.advanceDurable(position{segment: l.tail.seg.id, off: record.SegmentHeaderBytes})
}

// follows checks t against the segment before it.
func (t *trace) follows(before *trace) error {
	switch {
	case before == nil:
		return nil // whether something may be missing before it is known at the end: checkFront
	case before.seg.id+1 != t.seg.id:
		return t.corruptAt(0, fmt.Sprintf("segment %s is missing before it", record.SegmentName(t.seg.id-1)))
	case !before.head:
		return before.corruptAt(0, fmt.Sprintf("the segment header is damaged, although %s was made after it", record.SegmentName(t.seg.id)))
	case before.short():
		return before.cutShort()
	case before.atomic && t.head && !t.atomic:
		return t.corruptAt(0, fmt.Sprintf("it has version %d, but %s before it has a newer one", t.seg.head.Version, record.SegmentName(before.seg.id)))
	case !t.holds():
		t.beforeFlaw = before.ifTorn()
		return nil // it will be removed; the one before it is the last, and checked as such
	case before.beforeFlaw != nil:
		return before.beforeFlaw // two segments are unsynced at most
	}
	err := t.checkLink(before)
	if t.records == 0 && !t.proof {
		t.beforeFlaw, err = err, nil // the same crash may have torn both
	}
	return err
}

// checkLink returns what is wrong in what t says of the segment before it.
func (t *trace) checkLink(before *trace) error {
	switch {
	case !before.holds():
		return before.corruptAt(0, fmt.Sprintf("it holds no record, but %s after it does", record.SegmentName(t.seg.id)))
	case t.records == 0 && t.link.Segment == 0:
		// The link of t is torn or damaged: the segment before must look whole by itself.
		return before.ifTorn()
	case t.link.Segment != before.seg.id || t.link.Offset < before.end:
		return t.corruptAt(record.SegmentHeaderBytes, fmt.Sprintf("its link names segment %d with end %d, but segment %d ends at %d", t.link.Segment, t.link.Offset, before.seg.id, before.end))
	case t.link.Offset > before.end:
		return before.corrupt(fmt.Sprintf("%s, but %s says that valid records reached %d", before.why, record.SegmentName(t.seg.id), t.link.Offset))
	case t.link.Chain != before.chain:
		return t.corruptAt(record.SegmentHeaderBytes, fmt.Sprintf("its link carries chain %08x, but segment %d ends with %08x", t.link.Chain, before.seg.id, before.chain))
	}
	return nil
}

// ifTorn returns the error that says where t is torn, or nil.
func (t *trace) ifTorn() error {
	if !t.torn() {
		return nil
	}
	return t.corrupt(string(t.why))
}

// goesWithTorn reports whether t, which begins with this link, goes with the torn part of the segment
// before it. That is so if that segment was read just before, ends sooner than the link says, and no
// watermark in t says that it was synced. Then t has no records.
func (sc *scan) goesWithTorn(t *trace, link record.End, data []byte) bool {
	before := t.seg.id - 1
	if t.proof || link.Segment == 0 || link.Segment != before || sc.lastRead != before || sc.tip.Segment == before && link.Offset <= sc.tip.Offset {
		return false
	}
	t.link, t.why, t.broken = link, flawTornBefore, record.Header{}
	t.lookBeyond(data)
	t.judgeLost()
	return true
}
