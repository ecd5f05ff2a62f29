package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/wal/record"
)

// This file turns a directory into a Log, or says exactly why it cannot.
//
// A crash may have kept any subset of the sectors written since the last sync. All before it is intact, unless the
// disk is broken. Recovery accepts the longest valid sequence of records and then has to judge what stopped it:
//
//   - At most the last two segments with records were not synced. Of any other the link of the next one says where it ended, and
//     another end is corruption. So it is of the last but one, if a watermark in the last one says that it was synced. If none
//     does it may be the torn one; the last one then goes with what is cut (older.go).
//   - In the last segment, if a later header that is valid by itself has a watermark above the place, the place was
//     durable once: corruption. Otherwise nobody was ever told that it is durable: a torn tail, which is cut.
//
// One case cannot be decided by a single node: the last synced batch, spoiled before anything was written after it,
// looks like a torn one. A mark that the helper writes a few milliseconds later, or Close, ends that (idle.go).
//
// A write whose end was not accepted counts for nothing, and is voided (atomic.go).
//
// What is accepted was perhaps only in the kernel's memory (the process died, the machine did not), perhaps in pages
// that a failed fsync left there as clean. So it is written again from the last known watermark on, with zeros over
// the cut part, and synced, before anyone hears of it. Nothing is changed before everything is checked.

// Open opens the log in opts.Dir, making it if need be, and recovers what is there.
func Open(opts Options) (*Log, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	l, err := tryOpen(opts, nil)
	if opts.Salvage && errors.Is(err, ErrCorrupt) {
		l, err = openSalvaged(opts, err)
	}
	if err != nil {
		return nil, err
	}
	for _, g := range l.groups {
		g.durable.Store(g.last)
	}
	l.unfinished = unfinished{} // its memory
	l.holes, l.loss = l.loss.remaining(l), loss{}
	if opts.Mode.Kind == KindUnsafeInterval {
		l.interval = opts.Clock.Timer(func() {
			l.flushDue.Store(true)
			l.helper.Wake()
		})
	}
	if opts.Mode.Kind != KindMemory {
		l.idleTimer = opts.Clock.Timer(func() {
			l.idleDue.Store(true)
			l.helper.Wake()
		})
	}
	if l.reached.Offset > record.SegmentHeaderBytes && !l.hasSpare() { // a life before may have used up the reserve: what is left of it is not for entries
		l.starved.Store(true)
	}
	l.cleanBelow = l.tail.id
	l.cleanDue.Store(true)
	l.helper = opts.Scheduler.Go("wal", env.Disk, &helper{log: l})
	l.helper.Wake()
	opts.Logger.Info("wal: opened", "dir", opts.Dir, "durability", opts.Mode, "groups", len(l.groups), "segments", len(l.segments))
	return l, nil
}

// tryOpen opens the log, as far as its helper. damage is nil unless the log is known to be corrupt.
func tryOpen(opts Options, damage *damage) (*Log, error) {
	l := &Log{opts: opts, groups: map[uint64]*Group{}, segments: map[uint64]*segment{}, indexes: newIndexes(opts.SegmentBytes), damage: damage, cache: newRing(opts.CacheBytes)}
	l.made.L, l.cold.fs = &l.prepareMu, opts.FS
	err := l.open()
	if err == nil {
		err = l.completeFence()
	}
	if err == nil {
		return l, nil
	}
	if isFull(err) {
		err = l.full("recovery", opts.SegmentBytes, err)
	}
	return nil, errors.Join(fmt.Errorf("wal: open %s: %w", opts.Dir, err), l.closeFiles())
}

func (l *Log) open() error {
	fs, dir := l.opts.FS, l.opts.Dir
	if err := fs.MkdirAll(dir); err != nil {
		return err
	}
	lock, err := fs.Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		return err
	}
	l.lock = lock
	if err := l.placeInPlace(); err != nil {
		return err
	}
	if l.damage != nil && l.damage.draft {
		if err := l.finishDraft(); err != nil {
			return err
		}
	}
	found, names, err := l.scan()
	if err != nil {
		return err
	}
	tail := found.last()
	// From here on the disk is changed.
	if err := l.enterFence(tail); err != nil {
		return err
	}
	if err := l.enterLoss(names); err != nil {
		return err
	}
	if tail != nil {
		if err := l.cold.pin(tail.seg); err != nil {
			return err
		}
	}
	if err := l.saveTorn(found, names); err != nil {
		return err
	}
	if err := l.setAside(tail, names); err != nil {
		return err
	}
	if err := l.removeEmpty(found); err != nil {
		return err
	}
	if err := l.findSpares(names); err != nil {
		return err
	}
	if tail == nil {
		err := l.begin(found, names)
		l.reached = record.End{Segment: l.lastID, Offset: record.SegmentHeaderBytes}
		if err == nil {
			l.reached.Chain = l.tail.chain
		}
		return err
	}
	if before := found.before(tail); before != nil && !tail.proof {
		if err := l.secureOlder(before); err != nil {
			return err
		}
	}
	if err := l.adoptTail(tail); err != nil {
		return err
	}
	return l.mendGroups(found)
}

// begin makes the first segment of a log that has no record: of the one that is left of such a log, if there is one. For
// since the first segment was durable there must always be one.
func (l *Log) begin(found traces, names []string) error {
	if len(found) == 0 {
		l.lastID = highestID(names) + 1
		s, err := l.createSegment(l.lastID, l.opts.SegmentBytes, zeroPieceBytes)
		if err != nil {
			return err
		}
		return l.setTail(s)
	}
	s := found[0].seg
	if err := l.cold.pin(s); err != nil {
		return err
	}
	l.lastID = s.id
	s.end, s.size = record.SegmentHeaderBytes, max(s.size, l.opts.SegmentBytes)
	if err := s.file.Preallocate(0, s.size); err != nil {
		return err
	}
	if err := s.openDirect(l.opts.FS, s.path); err != nil {
		return err
	}
	if err := l.writeHead(s, zeroPieceBytes); err != nil { // a new salt: what is left of a torn first batch is no record any more
		return err
	}
	if err := s.file.Sync(); err != nil {
		return err
	}
	return l.setTail(s)
}

// clampCommits lowers commit indexes to the last entry where entries may have been lost without the commit index that
// speaks of them, and returns the groups it did that to, in order. A write of version 3 never does that. Versions 1 and 2
// wrote the hard state of a write before its entries, as records that counted by themselves; and a salvaged log lacks
// entries anywhere.
func (l *Log) clampCommits() []*Group {
	var clamped []*Group
	for _, g := range l.allGroups() {
		if g.hs.Commit > g.last && (g.loose || l.damage != nil) {
			g.hs.Commit = g.last
			clamped = append(clamped, g)
		}
	}
	return clamped
}

// removeEmpty removes the segments that hold no valid record, the highest first: segments prepared ahead, creations
// cut short, and one whose very first batch was torn, which is a torn tail like any other. If no segment holds one the
// first stays.
func (l *Log) removeEmpty(found traces) error {
	for i := len(found) - 1; i >= 0 && found[i].records == 0; i-- {
		s := found[i].seg
		if found[i].head && found[i].torn() {
			l.warnTorn(found[i])
		}
		if i == 0 {
			break
		}
		delete(l.segments, s.id)
		if err := s.close(); err != nil {
			return err
		}
		if err := l.opts.FS.Remove(s.path); err != nil {
			return err
		}
		if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
			return err
		}
	}
	l.stats.segments.Store(uint64(len(l.segments)))
	return nil
}

// warnTorn tells of what is cut off the end of t.
func (l *Log) warnTorn(t *trace) {
	l.opts.Logger.Warn(TornTail, "file", t.seg.path, "offset", t.end, "bytes", t.written-t.end, "reason", string(t.why))
	l.opts.emit(TailCut{File: t.seg.path, Offset: t.end, Bytes: t.written - t.end, Reason: string(t.why)})
}

// before returns the segment before t, or nil.
func (ts traces) before(t *trace) *trace {
	if i := slices.Index(ts, t); i > 0 {
		return ts[i-1]
	}
	return nil
}

// settleOlder makes sure that the segment before the tail is durable, where no watermark says so.
func (l *Log) secureOlder(t *trace) error {
	if err := l.cold.pin(t.seg); err != nil {
		return err
	}
	if err := t.writeAgain(); err != nil {
		return err
	}
	l.coolLater(t.seg)
	return nil
}

// writeAgain makes what t shows durable, and what it does not show zero.
func (t *trace) writeAgain() error {
	s := t.seg
	tail := make([]byte, t.written-t.watermark)
	if len(tail) > 0 {
		if err := s.readAt(tail[:t.end-t.watermark], t.watermark); err != nil {
			return err
		}
		if _, err := s.file.WriteAt(tail, t.watermark); err != nil {
			return fmt.Errorf("rewrite of %s at offset %d: %w", s.path, t.watermark, err)
		}
	}
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("sync of %s: %w", s.path, err)
	}
	return nil
}

// adoptTail makes the segment of t the one that is written, after making sure that what it shows is durable.
func (l *Log) adoptTail(t *trace) error {
	s := t.seg
	s.end, s.chain = t.end, t.chain
	if t.torn() && t.written > t.end {
		l.warnTorn(t)
	}
	if err := t.writeAgain(); err != nil {
		return err
	}
	if err := s.openDirect(l.opts.FS, s.path); err != nil {
		return err
	}
	s.zeroed.Store((s.end + s.block() - 1) &^ (s.block() - 1))
	l.tail, l.lastID = s, s.id
	if err := l.startBuffer(s); err != nil {
		return err
	}
	l.durable = position{segment: s.id, off: s.end}
	l.reached = record.End{Segment: s.id, Offset: s.end, Chain: s.chain}
	l.idling.watermark, l.idling.dataEnd = t.watermark, t.dataEnd
	if err := l.vouch(t); err != nil {
		return err
	}
	// Seen in seed 21 of TestCrash: a lowered commit index that is not written down comes back at the next recovery,
	// and then speaks of whatever was appended since.
	for _, g := range l.clampCommits() {
		at, err := l.putHardState(g.id, g.hs, oneRecord())
		if err != nil {
			return err
		}
		g.pinHardState(at)
	}
	return l.flush()
}

// vouch writes behind the tail of t, all of which is durable now, what makes the next records right: a new segment if the
// tail has the rules of an older version, whose link vouches for it; a void, durable at once, if a write has no end; or a
// mark, which says what is durable, if no watermark does yet, and of which generation this is.
func (l *Log) vouch(t *trace) error {
	if !t.atomic {
		if err := l.roll(); err != nil {
			return err
		}
	}
	if voided, err := l.void(); voided || err != nil {
		return err
	}
	if !t.atomic {
		_, err := l.put(record.Header{Kind: record.KindWatermark, Index: l.generation}, nil)
		return err
	}
	if t.end+2*record.HeaderBytes > t.seg.size { // this one and the one of Close
		return nil
	}
	return l.writeWatermark()
}
