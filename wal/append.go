package wal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"iter"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal/record"
)

// Append writes what several groups want, in order, with one write call unless a segment fills up on the
// way. When it returns nil, readers see the writes. They count after the next Sync or Flush, in ModeSync at
// once (mode.go). An error that is ErrInvalidWrite, ErrDiskFull or ErrBacklog has changed nothing; any
// other error is final.
//
// Each Write is atomic: after a crash the log holds all of it or nothing of it, even if it is larger than a
// segment. A crash keeps a prefix of the writes that were not durable, in the order of appending, over all
// groups. So the writes of one Append may be kept in part, each of them whole.
func (l *Log) Append(writes []Write) error {
	if err := l.append(writes); err != nil {
		return err
	}
	if l.opts.Mode.Kind == KindSync {
		return l.Sync()
	}
	return nil
}

func (l *Log) append(writes []Write) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	bytes, entries, err := l.admit(writes)
	if err != nil || bytes == 0 {
		return err
	}
	before, err := l.begin(bytes)
	if err != nil {
		return err
	}
	l.tail.growBuffer(int(bytes) + record.HeaderBytes + record.LinkBytes)
	for i := range writes {
		if err := l.encode(&writes[i], &l.batch.plans[i]); err != nil {
			return l.giveUp(before, bytes, err)
		}
	}
	if err := l.writeOut(before, bytes); err != nil {
		return err
	}
	l.publish(writes)
	l.count(bytes, entries)
	l.stats.appends.Add(1)
	return nil
}

// admit plans the writes and returns once there is space for all of them. While a segment is made for them
// mu is not held, so the writes are planned again afterwards. mu is held.
func (l *Log) admit(writes []Write) (bytes int64, entries int, err error) {
	for {
		if err := l.unusable(); err != nil {
			return 0, 0, err
		}
		bytes, entries, err := l.planWrites(writes)
		if err != nil || bytes == 0 {
			return 0, 0, err
		}
		if err := l.backlog(bytes, entries); err != nil {
			return 0, 0, err
		}
		missing := l.findSpaceFor(writes, bytes, entries)
		if missing == (lack{}) {
			return bytes, entries, nil
		}
		if err := l.waitFor(missing); err != nil {
			l.cleaner.due.Store(true)
			l.wakeHelper()
			return 0, 0, err
		}
	}
}

// backlog refuses entries while too many bytes are written and not durable. Writes without entries are
// never refused. mu is held.
func (l *Log) backlog(bytes int64, entries int) error {
	pending := l.pending()
	if limit := l.opts.MaxPendingBytes; limit == 0 || entries == 0 || pending == 0 || pending+bytes <= limit || l.opts.Mode.Unsafe() {
		return nil
	}
	l.stats.backlogged.Add(1)
	return fmt.Errorf("%w: %d bytes wait for a flush, %d more would exceed Options.MaxPendingBytes, %d; complete one and append again",
		ErrBacklog, pending, bytes, l.opts.MaxPendingBytes)
}

// writeOut writes what was encoded since before, or takes it back if the disk is full. mu is held.
func (l *Log) writeOut(before undo, bytes int64) error {
	wrote, err := l.tryFlush()
	if err == nil {
		return nil
	}
	return l.giveUp(before, bytes, &tailError{wrote, err})
}

// giveUp ends an append that failed with err. If the disk is full, it may be tried again. Then nothing of it
// is left, or it is removed before the next one is written. Any other error is final. mu is held.
func (l *Log) giveUp(before undo, bytes int64, err error) error {
	var t *tailError
	if !errors.As(err, &t) {
		return err
	}
	if isFull(err) && l.takeBack(before, t.wrote) == nil {
		return &DiskFullError{Op: "write of the log's tail", Dir: l.opts.Dir, Bytes: bytes, Left: len(l.tail.residues) > 0, Err: t.err}
	}
	return l.fail("write", l.tail.seg, l.tail.bufAt, t.err)
}

// tailError is a failed write to the tail that may be taken back. Up to wrote bytes of the buffer may be in
// the file.
type tailError struct {
	wrote int
	err   error
}

func (e *tailError) Error() string { return fmt.Sprintf("write of the log's tail: %v", e.err) }
func (e *tailError) Unwrap() error { return e.err }

// findSpaceFor returns what is missing before planned writes can be encoded. Entries wait until the reserve
// for other writes exists again. mu is held.
func (l *Log) findSpaceFor(writes []Write, bytes int64, entries int) lack {
	switch {
	case entries > 0 && l.supply.starved.Load():
		return lack{reserve: true}
	case l.fits(bytes):
		return lack{}
	}
	return l.findSpace(entries == 0, eachRecord(writes, l.batch.plans))
}

// eachRecord returns the bytes of each record of the writes, in order.
func eachRecord(writes []Write, plans []plan) iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for i := range writes {
			p := &plans[i]
			if p.hard && !yield(record.Bytes(record.HardStateBytes)) {
				return
			}
			for range p.bodiless() {
				if !yield(record.Bytes(0)) {
					return
				}
			}
			for j := range writes[i].Entries {
				if !yield(record.Bytes(len(writes[i].Entries[j].Data))) {
					return
				}
			}
		}
	}
}

// unusable returns the reason why the log accepts nothing, or nil. mu is held.
func (l *Log) unusable() error {
	if l.table.closed.Load() {
		return ErrClosed
	}
	return l.failure()
}

// encode puts the records of w into the buffer, and rolls over to further segments as they fill. mu is
// held.
func (l *Log) encode(w *Write, p *plan) error {
	g := p.group
	b := edges{left: p.records(len(w.Entries))}
	var err error
	if p.hard {
		if p.hardAt, err = l.putHardState(g.id, w.HardState, &b); err != nil {
			return err
		}
	}
	if p.deletes {
		if p.deletedAt, err = l.putDeletion(g.id, &b); err != nil {
			return err
		}
	}
	if p.begin != 0 {
		if p.startAt, err = l.putStart(g.id, p.begin, p.start, &b); err != nil {
			return err
		}
	}
	if p.cut {
		if _, err := l.put(record.Header{Kind: record.KindTruncation, Edge: b.next(), Group: g.id, Index: w.TruncateFrom}, nil); err != nil {
			return err
		}
	}
	for i := range w.Entries {
		e := &w.Entries[i]
		s, err := l.putSummed(record.Header{Kind: record.KindEntry, Edge: b.next(), Type: uint8(e.Type), Group: g.id, Index: e.Index, Term: e.Term}, e.Data, e.Sum)
		if err != nil {
			return err
		}
		l.batch.spots = append(l.batch.spots, s)
	}
	return nil
}

// putStart writes the record that says after which entry a group's log begins. It returns the segment of
// that record.
func (l *Log) putStart(group uint64, k record.Kind, id raftpb.EntryID, b *edges) (segment uint64, err error) {
	s, err := l.put(record.Header{Kind: k, Edge: b.next(), Group: group, Index: id.Index, Term: id.Term}, nil)
	return s.segment, err
}

// putHardState writes a hard state, and returns the segment of its record.
func (l *Log) putHardState(group uint64, hs raftpb.HardState, b *edges) (segment uint64, err error) {
	var body [record.HardStateBytes]byte
	binary.LittleEndian.PutUint64(body[0:], hs.Vote)
	binary.LittleEndian.PutUint64(body[8:], hs.Commit)
	s, err := l.put(record.Header{Kind: record.KindHardState, Edge: b.next(), Group: group, Term: hs.Term}, body[:])
	return s.segment, err
}

// put encodes one record at the end of the log, after what is in the buffer already. mu is held.
func (l *Log) put(h record.Header, body []byte) (spot, error) { return l.putSummed(h, body, 0) }

// putSummed is put for a body whose sum may be known (raftpb.Entry.Sum).
func (l *Log) putSummed(h record.Header, body []byte, sum uint32) (spot, error) {
	if err := l.ensureSpace(record.Bytes(len(body))); err != nil {
		return spot{}, err
	}
	if l.tail.seg.end == record.SegmentHeaderBytes {
		l.putRecord(l.tail.sealed.Link())
	}
	where := l.putRecordSummed(h, body, sum)
	l.tail.idling.dataEnd = l.tail.seg.end
	return where, nil
}

// putRecord encodes a record for which there is space in the tail.
func (l *Log) putRecord(h record.Header, body []byte) spot { return l.putRecordSummed(h, body, 0) }

// putRecordSummed is putRecord for a body whose sum may be known. The record gets that sum, whatever the
// bytes are by now: a recovery finds what has rotted since it was made.
func (l *Log) putRecordSummed(h record.Header, body []byte, sum uint32) spot {
	s := l.tail.seg
	at, n := len(l.tail.buf), int(record.Bytes(len(body)))
	l.tail.growBuffer(n)
	l.tail.buf = l.tail.buf[:at+n]
	b := l.tail.buf[at:]
	clear(b[record.HeaderBytes+copy(b[record.HeaderBytes:], body):])

	h.Length = uint32(len(body))
	h.Durable = uint64(l.watermark())
	l.tail.idling.watermark = l.watermark()
	if sum != 0 {
		h.BodyCRC = record.ChainSum(s.chain, sum, len(body))
	} else {
		h.BodyCRC = record.ChainBody(s.chain, b[record.HeaderBytes:])
	}
	where := spot{segment: s.id, off: s.end, end: s.end + int64(n), seed: s.chain}
	s.chain = record.PutHeader(b, h, s.head.Seal(), s.end)
	s.end += int64(n)
	return where
}

// ensureSpace rolls over to the next segment if n bytes plus a watermark record do not fit in the tail.
// findSpace has already ensured that a large enough segment is ready. mu is held.
func (l *Log) ensureSpace(n int64) error {
	if l.tail.seg.end == record.SegmentHeaderBytes || l.tail.seg.end+n+record.HeaderBytes <= l.tail.seg.size {
		return nil
	}
	return l.roll()
}

// roll seals the tail and continues in the next segment. The next flush syncs both files; see older.go. mu
// is held.
func (l *Log) roll() error {
	if wrote, err := l.tryFlush(); err != nil {
		return &tailError{wrote, err}
	}
	l.coolSealed()
	if err := l.syncOlder(); err != nil { // of an append that is larger than a segment; others have waited without mu
		return err
	}
	next, err := l.takeNext()
	if err != nil {
		return err
	}
	l.tail.sealed = record.End{Segment: l.tail.seg.id, Offset: l.tail.seg.end, Chain: l.tail.seg.chain}
	if l.watermark() == l.tail.seg.end {
		l.tail.sealedSynced = l.tail.seg
	} else {
		l.flusher.older = l.tail.seg
	}
	l.cleaner.due.Store(true)
	l.wakeHelper()
	if err := l.setTail(next); err != nil {
		return l.fail("read of the first block", next, 0, err)
	}
	return nil
}

// setTail makes an empty, durable segment the tail. mu is held.
func (l *Log) setTail(s *segment) error {
	l.table.addSegment(s)
	l.tail.seg = s
	s.reached.Store(true)
	young := s.zeroed.Load() < s.size
	if l.stats.tailYoung.Store(young); young {
		l.stats.youngTails.Add(1)
	}
	if l.flusher.older == nil {
		l.flusher.durable = position{segment: s.id, off: s.end}
	}
	l.tail.idling.watermark, l.tail.idling.dataEnd = l.watermark(), s.end
	return l.startBuffer(s)
}

// publish shows the written records to readers. mu is held.
func (l *Log) publish(writes []Write) {
	spots, entries := l.batch.spots, 0
	for i := range writes {
		w := &writes[i]
		l.publishWrite(w, &l.batch.plans[i], spots[:len(w.Entries)])
		spots = spots[len(w.Entries):]
		entries += len(w.Entries)
	}
	l.stats.appendedEntries.Add(uint64(entries))
	l.batch.spots = l.batch.spots[:0]
	l.stats.cachedBytes.Store(uint64(l.table.cache.bytes()))
	l.table.boundIndex()
	if l.cleaner.due.Load() {
		l.cleaner.below = l.tail.seg.id
		l.wakeHelper()
	}
}

// publishWrite shows w, whose entries are at spots, to the readers of its group. The log's mu is held.
func (l *Log) publishWrite(w *Write, p *plan, spots []spot) {
	g := p.group
	if g.deleted {
		return // it deletes the group once more
	}
	kept := l.table.beginKeep(w.Entries)
	g.mu.Lock()
	l.publishTo(g, w, p, spots)
	if kept.n > 0 {
		l.table.showRun(g, w.Entries[:kept.n], &kept)
	}
	g.mu.Unlock()
	l.table.keep(g, w.Entries[kept.n:])
}

// publishTo changes a group as w says. The mu of the log and of the group are held.
func (l *Log) publishTo(g *Group, w *Write, p *plan, spots []spot) {
	if !g.touched {
		g.touched = true
		l.flusher.touched = append(l.flusher.touched, g)
	}
	if p.critical {
		l.flusher.critical = position{segment: l.tail.seg.id, off: l.tail.seg.end}
	}
	if p.deletes {
		l.cleaner.freedBytes += g.forget()
		l.table.bury(g.id, p.deletedAt)
		l.cleaner.due.Store(true)
	}
	if p.hard {
		g.setHardState(w.HardState)
		g.pinHardState(p.hardAt)
	}
	if p.begin != 0 {
		l.cleaner.freedBytes += g.begin(p.begin, p.start)
		g.pinStart(p.startAt)
		if p.begin == record.KindReset || l.cleaner.freedBytes >= l.opts.SegmentBytes/surveyShare {
			l.cleaner.freedBytes = 0
			l.cleaner.due.Store(true)
		}
	}
	if p.cut {
		g.truncate(w.TruncateFrom)
	}
	if len(w.Entries) > 0 {
		g.truncate(w.Entries[0].Index)
		for i := range w.Entries {
			g.setPlace(w.Entries[i].Index, w.Entries[i].Term, uint8(w.Entries[i].Type), spots[i])
		}
	}
}
