package wal

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// This file turns a directory into a Log, or returns an error that says exactly why it cannot.
//
// A crash may have kept any subset of the sectors written since the last sync. Everything written before
// that sync is intact, unless the disk is broken. Recovery accepts the longest valid sequence of records.
// Then it judges what ended the sequence. In the table, t is the segment whose records ended. A place is
// known to be durable if a watermark, a link or FENCE says so. TestVerdictOnTheEnd checks each row.
//
//	what ends the records of t      is something durable behind it?       same boot*  verdict
//	zeros, or the end of the file   no                                    any         the end of the log
//	anything else                   no                                    no          torn: cut, a copy saved
//	bytes no kill can leave         no                                    yes         corrupt (checkKill)
//	anything                        a later watermark in t is above it    any         corrupt (trace.checkEnd)
//	anything                        a synced link that names another end  any         corrupt (follows)
//	anything but the link's end     a link that nothing says was synced   any         torn, with all of the
//	                                                                                  next segment (older.go)
//	anything                        FENCE knows a later end               any         corrupt (missing.go)
//	a write without its end         no                                    any         voided (atomic.go)
//
//	* the machine and the filesystem stayed up, and t was written directly (torn.go).
//
// At most the last two segments with records are unsynced. For every other segment, the link in the next
// segment says where it ended.
//
// A single node cannot decide one case: if the last synced append is damaged before anything else is
// written, it looks like a torn one. The case ends when the helper writes a watermark record, a few
// milliseconds later, or at Close (idle.go).
//
// An accepted record may exist only in the kernel's memory, because the process died and the machine did
// not. It may be in pages that a failed fsync left marked as clean. So recovery writes the records again
// from the last known watermark on, writes zeros over the cut part, and syncs, before any caller sees the
// log. It changes nothing until every check has passed.

// Open opens the log in opts.Dir, and creates it if it does not exist. It recovers what the directory holds.
func Open(opts Options) (*Log, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	opts = opts.withDefaults()
	var err error
	if opts.Dir, err = vfs.Absolute(opts.FS, opts.Dir); err != nil {
		return nil, fmt.Errorf("wal: Options.Dir is a relative path, and the working directory is not known: %w", err)
	}
	l, err := recoverLog(opts, nil)
	if opts.Salvage && errors.Is(err, ErrCorrupt) {
		l, err = openSalvaged(opts, err)
	}
	if err != nil {
		return nil, err
	}
	l.start()
	return l, nil
}

// recovery turns a scan into a log: the half of Open that writes. It ends with Open.
type recovery struct {
	log     *Log
	scan    *scan
	loss    loss       // what the file LOSS says, or is to say
	reached record.End // where the log ended, durably, when its tail was adopted
}

// opRecovery is the operation of a DiskFullError of Open.
const opRecovery = "recovery"

// recoverLog opens the log, without its helper. damage is nil unless the log is known to be corrupt.
func recoverLog(opts Options, d *damage) (*Log, error) {
	sc := newScan(opts, d)
	r := &recovery{log: newLog(opts, sc.table), scan: sc}
	err := r.run()
	if err == nil {
		err = r.completeFence()
	}
	if err != nil {
		if isFull(err) {
			err = r.log.full(opRecovery, opts.SegmentBytes, err)
		}
		return nil, errors.Join(wrapped("open "+opts.Dir, err), r.log.closeFiles())
	}
	for _, g := range r.log.table.groups {
		g.durable.Store(g.last)
	}
	r.log.holes = r.loss.remaining(r.log.table)
	if r.reached.Offset > record.SegmentHeaderBytes && !r.log.supply.hasSpare() {
		r.log.supply.starved.Store(true) // an earlier life may have used up the reserve: entries must not use the rest of it
	}
	return r.log, nil
}

// start begins the background work of a log that was recovered.
func (l *Log) start() {
	if l.opts.Mode.Kind == KindUnsafeInterval {
		l.flusher.interval = l.opts.Clock.Timer(func() {
			l.flusher.due.Store(true)
			l.helper.Wake()
		})
	}
	if l.opts.Mode.Kind != KindMemory {
		l.idle.timer = l.opts.Clock.Timer(func() {
			l.idle.due.Store(true)
			l.helper.Wake()
		})
		l.zeros.timer = l.opts.Clock.Timer(func() { l.helper.Wake() })
	}
	l.cleaner.below = l.tail.seg.id
	l.cleaner.due.Store(true)
	l.opts.Logger.Info("wal: opened", "dir", l.opts.Dir, "durability", l.opts.Mode, "groups", len(l.table.groups), "segments", len(l.table.segments))
	l.helper = l.opts.Scheduler.Go("wal", env.Disk, &helper{log: l})
	l.helper.Wake()
}

// run takes the directory, scans it, and makes it and the log agree on what the scan found.
func (r *recovery) run() error {
	if err := r.takeDirectory(); err != nil {
		return err
	}
	if err := r.scan.read(); err != nil {
		return err
	}
	l, found, names := r.log, r.scan.traces, r.scan.names
	l.logID, l.cleaner.firstNeeded = r.scan.logID, r.scan.firstNeeded
	tail := found.last()
	// From here on the disk is changed.
	if err := r.enterFence(tail); err != nil {
		return err
	}
	if err := r.enterLoss(names); err != nil {
		return err
	}
	if tail != nil {
		if err := l.table.cold.pin(tail.seg); err != nil {
			return err
		}
	}
	if err := r.saveTorn(found, names); err != nil {
		return err
	}
	if err := r.setAside(tail, names); err != nil {
		return err
	}
	found, err := r.removeEmpty(found)
	if err != nil {
		return err
	}
	if err := l.findSpares(names); err != nil {
		return err
	}
	if len(found) == 0 {
		return r.begin(names)
	}
	if tail == nil { // the log has no record yet, and continues in its first segment
		tail = found[0]
		if err := l.table.cold.pin(tail.seg); err != nil {
			return err
		}
	}
	if before := found.before(tail); before != nil && !tail.proof {
		if err := r.secureOlder(before); err != nil {
			return err
		}
	}
	if err := r.adoptTail(tail); err != nil {
		return err
	}
	return r.mendGroups(found)
}

// takeDirectory creates and locks the directory. It ends a salvage that was cut off, if this is another one.
func (r *recovery) takeDirectory() error {
	l := r.log
	if err := l.opts.FS.MkdirAll(l.opts.Dir); err != nil {
		return err
	}
	lock, err := l.opts.FS.Lock(filepath.Join(l.opts.Dir, "LOCK"))
	if err != nil {
		return err
	}
	l.lock, l.opts.FS = lock, vfs.Owned(l.opts.FS, lock, l.opts.Dir)
	l.table.dir.fs, l.table.cold.fs, r.scan.dir.fs = l.opts.FS, l.opts.FS, l.opts.FS
	if l.names, err = l.opts.FS.OpenDir(l.opts.Dir); err != nil {
		return err
	}
	if err := l.placeInPlace(); err != nil {
		return err
	}
	if d := r.scan.damage; d != nil && d.draft {
		return r.finishDraft()
	}
	return nil
}

// begin makes the first segment of a log that has none.
func (r *recovery) begin(names []string) error {
	r.log.supply.lastID = maxID(names) + 1
	s, err := r.log.createSegment(r.log.supply.lastID, r.log.opts.SegmentBytes, pieceBytes(r.log.opts.SegmentBytes))
	if err != nil {
		return err
	}
	r.reached = record.End{Segment: s.id, Offset: record.SegmentHeaderBytes, Chain: s.chain}
	return r.log.setTail(s)
}

// mendStates lowers the commit index of a group to its last entry where entries may be lost without the
// commit index that covers them. It returns the groups it changed, in order. A write of version 3 never
// needs that. Versions 1 and 2 wrote the hard state of a write before its entries, as records that counted
// by themselves; and a salvaged log may lack any entries.
//
// It may also lack the hard state, which cleaning has moved behind entries of its term. Then the group is in
// the term of its last entry, without a vote.
func (r *recovery) mendStates() []*Group {
	var mended []*Group
	salvaged := r.log.fence.now.has(flagTerms) // a crash may have kept nothing of what a salvage mended
	for _, g := range r.log.table.allGroups() {
		was := g.hs
		if g.hs.Commit > g.last && (g.loose || salvaged) {
			g.hs.Commit = g.last
		}
		if term, err := g.term(g.last); salvaged && err == nil && g.hs.Term < term {
			g.setHardState(raftpb.HardState{Term: term, Commit: g.hs.Commit})
		}
		if g.hs != was {
			mended = append(mended, g)
		}
	}
	return mended
}

// removeEmpty removes the segments that hold no valid record, the highest first: segments prepared ahead,
// creations that were cut short, and a segment whose very first batch was torn. It returns the segments that
// stay. If no segment holds a record, the first one stays, unless its creation was cut short.
//
// Rejected: writing the header of that first segment again, for a new salt. FENCE says that the log has a
// first segment, so a write that fails or is torn there leaves a log that no later Open accepts.
func (r *recovery) removeEmpty(found traces) (traces, error) {
	for len(found) > 0 {
		i := len(found) - 1
		t := found[i]
		if t.records > 0 || i == 0 && t.begun() {
			break
		}
		if t.head && t.torn() {
			r.warnTorn(t)
		}
		delete(r.log.table.segments, t.seg.id)
		if err := t.seg.close(); err != nil {
			return nil, err
		}
		found = found[:i]
		if err := r.log.opts.FS.Remove(t.seg.path); err != nil {
			return nil, err
		}
		if err := vfs.SyncDir(r.log.opts.FS, r.log.opts.Dir); err != nil {
			return nil, err
		}
	}
	r.log.stats.segments.Store(uint64(len(r.log.table.segments)))
	return found, nil
}

// begun reports whether a log without records may continue in the segment of t. If not, nothing that the
// segment held was ever durable (its creation was cut short), or it is of an older version.
func (t *trace) begun() bool { return t.head && !t.short() && t.atomic }

// warnTorn logs what is cut off the end of t.
func (r *recovery) warnTorn(t *trace) {
	r.log.opts.Logger.Warn(TornTail, "file", t.seg.path, "offset", t.end, "bytes", t.written-t.end, "reason", string(t.why))
	r.log.opts.emit(TailCut{File: t.seg.path, Offset: t.end, Bytes: t.written - t.end, Reason: string(t.why)})
}

// before returns the segment before t, or nil.
func (ts traces) before(t *trace) *trace {
	if i := slices.Index(ts, t); i > 0 {
		return ts[i-1]
	}
	return nil
}

// secureOlder makes the segment before the tail durable where no watermark says that it is.
func (r *recovery) secureOlder(t *trace) error {
	if err := r.log.table.cold.pin(t.seg); err != nil {
		return err
	}
	if err := t.writeAgain(t.written); err != nil {
		return err
	}
	r.log.supply.coolLater(t.seg)
	return nil
}

// writeAgain makes durable what t shows, and fills with zeros what it does not show, through an offset at
// least.
func (t *trace) writeAgain(through int64) error {
	s := t.seg
	tail := make([]byte, min(max(t.written, through), s.size)-t.watermark)
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

// adoptTail makes the segment of t the tail, after making durable what it shows.
func (r *recovery) adoptTail(t *trace) error {
	s := t.seg
	s.end, s.chain = t.end, t.chain
	if t.torn() && t.written > t.end {
		r.warnTorn(t)
	}
	// Seen in seed 1795845370127006556 of TestCrashLab: after a failed sync the kernel may show zeros where the
	// disk has a record that was taken back. A sync does not write these zeros, since they count as clean.
	if err := t.writeAgain(t.end + record.HeaderBytes); err != nil {
		return err
	}
	if err := s.openDirect(r.log.opts.FS, s.path); err != nil {
		return err
	}
	s.zeroed.Store((s.end + s.block() - 1) &^ (s.block() - 1))
	r.log.tail.seg, r.log.supply.lastID = s, s.id
	if err := r.log.startBuffer(s); err != nil {
		return err
	}
	r.log.flusher.durable = position{segment: s.id, off: s.end}
	r.reached = record.End{Segment: s.id, Offset: s.end, Chain: s.chain}
	r.log.tail.idling.watermark, r.log.tail.idling.dataEnd = t.watermark, t.dataEnd
	if err := r.writeBehind(t); err != nil {
		return err
	}
	// Seen in seed 21 of TestCrash: a lowered commit index that is not written down comes back at the next
	// recovery, and then covers entries that were appended since.
	for _, g := range r.mendStates() {
		at, err := r.log.putHardState(g.id, g.hs, oneRecord())
		if err != nil {
			return err
		}
		g.pinHardState(at)
	}
	return r.log.flush()
}

// writeBehind writes the record behind the tail of t that makes the next records right. All of the tail is
// durable now. If the tail has the rules of an older version, that is a new segment, whose link says where
// the tail ends. If a write lacks its end, it is a void, durable at once. Otherwise it is a watermark record,
// which says what is durable and of which generation this is.
func (r *recovery) writeBehind(t *trace) error {
	if !t.atomic {
		if err := r.log.roll(); err != nil {
			return err
		}
	}
	if voided, err := r.void(); voided || err != nil {
		return err
	}
	if !t.atomic {
		_, err := r.log.put(record.Header{Kind: record.KindWatermark, Index: r.log.generation}, nil)
		return err
	}
	if t.records == 0 {
		r.log.putRecord(r.log.tail.sealed.Link()) // first in every segment
	}
	if t.end+2*record.HeaderBytes > t.seg.size { // this one and the one of Close
		return nil
	}
	return r.log.writeWatermark()
}
