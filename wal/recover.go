package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/millrace/millrace/raft/raftpb"
)

// This file turns a directory into a Log, or says exactly why it cannot.
//
// A crash may have kept any subset of the sectors written since the last sync. All before it is intact, unless the
// disk is broken. Recovery accepts the longest valid sequence of records and then has to judge what stopped it:
//
//   - In a segment that another one follows, everything was synced before the other got its first record. The link
//     says where it ended; any other end is corruption.
//   - In the last segment, if a later header that is valid by itself has a watermark above the place, the place was
//     durable once: corruption. Otherwise nobody was ever told that it is durable: a torn tail, which is cut.
//
// One case cannot be decided by a single node: the last synced batch, spoiled before anything was written after it,
// looks like a torn one. Close writes a mark so that it cannot happen to a log at rest.
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
	l := &Log{opts: opts, groups: map[uint64]*Group{}, segments: map[uint64]*segment{}, stride: minStride}
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("wal: open %s: %w", opts.Dir, err), l.closeFiles())
	}
	for _, g := range l.groups {
		g.durable = g.last
	}
	if opts.Mode.Kind == KindUnsafeInterval {
		l.interval = opts.Clock.Timer(func() {
			l.flushDue.Store(true)
			l.helper.Wake()
		})
	}
	l.helper = opts.Scheduler.Go("wal", &helper{log: l})
	l.helper.Wake()
	opts.Logger.Info("wal: opened", "dir", opts.Dir, "durability", opts.Mode, "groups", len(l.groups), "segments", len(l.segments))
	return l, nil
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
	found, names, err := l.scan()
	if err != nil {
		return err
	}
	// From here on the disk is changed.
	if err := l.enterFence(); err != nil {
		return err
	}
	tail := found.last()
	if err := l.removeEmpty(found); err != nil {
		return err
	}
	if err := l.findSpares(names); err != nil {
		return err
	}
	if tail == nil {
		s, err := l.createSegment(1, l.opts.SegmentBytes, zeroPieceBytes)
		if err != nil {
			return err
		}
		l.lastID = 1
		return l.setTail(s)
	}
	return l.adoptTail(tail)
}

// trace is what the scan of one segment found.
type trace struct {
	seg  *segment
	head bool // the segment header is valid

	records int    // valid records from the start
	link    sealed // what the first of them says
	chain   uint32 // after the last of them
	end     int64  // after the last of them
	dataEnd int64  // after the last that is not a mark
	marked  int64  // the highest watermark in them
	why     flaw   // what is at end
	broken  header // the header at end, if it can be read

	later       bool  // there is a valid header at or after end
	laterMarked int64 // the highest watermark in those
	written     int64 // after the last byte that must be overwritten, if the segment is gone on with
}

// torn reports whether the valid records of t end in something else than an append's end (rule R10).
func (t *trace) torn() bool { return t.why != flawZero && t.why != flawShort || t.later }

// holds reports whether a record was ever written to the segment, whether or not one survives.
func (t *trace) holds() bool { return t.records > 0 || t.later }

// corrupt describes the place where the valid records of t end.
func (t *trace) corrupt(reason string) error {
	return &CorruptError{File: t.seg.path, Offset: t.end, Group: t.broken.group, Index: t.broken.index, Reason: reason}
}

// traces are the segments of a directory, in order.
type traces []*trace

// last returns the segment to go on with, or nil: the last one with valid records.
func (ts traces) last() *trace {
	for i := len(ts) - 1; i >= 0; i-- {
		if ts[i].records > 0 {
			return ts[i]
		}
	}
	return nil
}

// scan reads and checks all segments, and replays their records. It changes nothing on disk, except that the names
// it saw are durable when it returns.
func (l *Log) scan() (found traces, names []string, err error) {
	names, err = l.opts.FS.ReadDir(l.opts.Dir)
	if err != nil {
		return nil, nil, err
	}
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
		return nil, nil, err
	}
	var before *trace // the segment before, if any
	var buf []byte
	for _, name := range names { // the order of names is the order of ids
		id, ok := parseSegmentName(name)
		if !ok {
			continue
		}
		var t *trace
		t, buf, err = l.scanFile(id, buf)
		if err != nil {
			return nil, nil, err
		}
		found = append(found, t)
		if err := t.follows(before); err != nil {
			return nil, nil, err
		}
		before = t
	}
	if err := found.checkTail(); err != nil {
		return nil, nil, err
	}
	if err := found.checkFront(l.front); err != nil {
		return nil, nil, err
	}
	return found, names, l.checkGroups()
}

// follows checks t against the segment before it.
func (t *trace) follows(before *trace) error {
	switch {
	case !t.holds():
		return nil // it will be removed; the one before it is the last, and checked as such
	case before == nil:
		return nil // whether something may be missing before it is known at the end: checkFront
	case before.seg.id+1 != t.seg.id:
		return t.corruptAt(0, fmt.Sprintf("segment %s is missing before it", segmentName(t.seg.id-1)))
	case !before.holds():
		return before.corruptAt(0, fmt.Sprintf("it holds no record although %s, after it, does", segmentName(t.seg.id)))
	case t.records == 0:
		// Its link is torn or spoiled, and cannot vouch for the one before: that one must look whole by itself.
		if before.torn() {
			return before.corrupt(string(before.why))
		}
		return nil
	case t.link.id != before.seg.id || t.link.end < before.end:
		return t.corruptAt(segmentHead, fmt.Sprintf("its link names segment %d with end %d, but segment %d ends at %d", t.link.id, t.link.end, before.seg.id, before.end))
	case t.link.end > before.end:
		return before.corrupt(fmt.Sprintf("%s, but %s says that valid records reached %d", before.why, segmentName(t.seg.id), t.link.end))
	case t.link.chain != before.chain:
		return t.corruptAt(segmentHead, fmt.Sprintf("its link carries chain %08x, but segment %d ends with %08x", t.link.chain, before.seg.id, before.chain))
	}
	return nil
}

func (t *trace) corruptAt(off int64, reason string) error {
	return &CorruptError{File: t.seg.path, Offset: off, Reason: reason}
}

// checkFront is rule R7.
func (ts traces) checkFront(front uint64) error {
	if len(ts) == 0 || ts[0].records == 0 || ts[0].link.id == 0 || ts[0].seg.id <= front {
		return nil
	}
	return ts[0].corruptAt(0, fmt.Sprintf("it says that segment %s came before it, which is missing", segmentName(ts[0].link.id)))
}

// checkTail checks the segments that no link vouches for: the last with valid records and a torn one after it.
func (ts traces) checkTail() error {
	tail := ts.last()
	for _, t := range ts {
		if err := t.checkEnd(t == tail); err != nil {
			return err
		}
	}
	return nil
}

func (t *trace) checkEnd(tail bool) error {
	if (tail || t.records == 0 && t.later) && t.laterMarked > t.end {
		return t.corrupt(fmt.Sprintf("%s, but a later record says that everything up to %d was durable", t.why, t.laterMarked))
	}
	return nil
}

// scanFile reads one segment into buf, which it may replace, and replays it.
func (l *Log) scanFile(id uint64, buf []byte) (*trace, []byte, error) {
	s := &segment{id: id, path: l.segmentPath(id)}
	f, err := l.opts.FS.Open(s.path)
	if err != nil {
		return nil, buf, err
	}
	s.file = f
	l.addSegment(s)
	size, err := f.Size()
	if err != nil {
		return nil, buf, err
	}
	s.size = size &^ (recordAlign - 1)
	if s.size > int64(cap(buf)) {
		buf = make([]byte, s.size)
	}
	buf = buf[:s.size]
	if len(buf) > 0 {
		if err := s.readAt(buf, 0); err != nil {
			return nil, buf, err
		}
	}
	t := &trace{seg: s}
	return t, buf, l.scanBytes(t, buf)
}

// scanBytes replays the records in data, the contents of a segment. It believes nothing that it has not checked.
func (l *Log) scanBytes(t *trace, data []byte) error {
	s := t.seg
	head, ok := parseSegmentHead(data)
	t.head = ok
	t.end, t.dataEnd, t.marked, t.chain = segmentHead, segmentHead, segmentHead, head.crc
	if !ok {
		// Made by a creation that a crash cut short, if no record follows; for the header is durable before any is.
		t.lookBeyond(data)
		if t.later {
			return t.corruptAt(0, "the segment header is damaged")
		}
		return nil
	}
	switch {
	case head.version < firstVersion || head.version > formatVersion:
		return fmt.Errorf("%w: %s has version %d, this program knows %d to %d; use a newer one", ErrVersion, s.path, head.version, firstVersion, formatVersion)
	case head.owner != l.opts.Owner:
		return fmt.Errorf("%w: %s was written by host %d, this is host %d; give each host a directory of its own", ErrOwner, s.path, head.owner, l.opts.Owner)
	case head.id != s.id:
		return t.corruptAt(0, fmt.Sprintf("the file is segment %d by its header; somebody renamed it", head.id))
	}
	for {
		h, body, why := parseRecord(data[min(t.end, int64(len(data))):], s.id, t.end, t.chain)
		if why == flawVersion {
			return fmt.Errorf("%w: %s has a record at offset %d of another version than %d to %d; use a newer program", ErrVersion, s.path, t.end, firstVersion, formatVersion)
		}
		if why != flawNone {
			t.why, t.broken = why, h
			break
		}
		if err := l.replay(t, h, body); err != nil {
			return err
		}
		t.records++
		t.marked = max(t.marked, int64(h.durable))
		t.end += h.bytes()
		t.chain = h.headCRC
		if h.kind != kindMark {
			t.dataEnd = t.end
		}
	}
	t.lookBeyond(data)
	return nil
}

// replay applies one valid record, by rule R5.
func (l *Log) replay(t *trace, h header, body []byte) error {
	if (h.kind == kindLink) != (t.end == segmentHead) {
		return &CorruptError{File: t.seg.path, Offset: t.end, Group: h.group, Index: h.index, Reason: fmt.Sprintf("a %s record stands where it must not", h.kind)}
	}
	where := spot{segment: t.seg.id, off: t.end, end: t.end + h.bytes(), seed: t.chain}
	switch h.kind {
	case kindLink:
		t.link = sealed{id: h.index, end: int64(h.term), chain: uint32(binary.LittleEndian.Uint64(body))}
	case kindMark:
	case kindFront:
		l.front = max(l.front, h.index)
	default:
		l.replayGroup(l.Group(h.group), h, body, where)
	}
	return nil
}

// replayGroup applies a record of one group. It takes what it gets: rule R9 is checked when all is applied, since of a
// log whose front was dropped, entries come before what they stand on.
func (l *Log) replayGroup(g *Group, h header, body []byte, where spot) {
	marks := len(g.index.marks)
	switch h.kind {
	case kindHardState:
		g.hs = raftpb.HardState{
			Term:   h.term,
			Vote:   binary.LittleEndian.Uint64(body[0:]),
			Commit: binary.LittleEndian.Uint64(body[8:]),
		}
		g.hsAt = where.segment
	case kindTruncate:
		g.truncate(h.index)
	case kindBase, kindReset:
		g.begin(h.kind, entryID{h.index, h.term})
		g.startAt = where.segment
	case kindEntry:
		g.place(h.index, h.term, where, l.stride)
	case kindMoved:
		g.move(h.index, h.term, where, l.stride)
	}
	l.marks += len(g.index.marks) - marks
	l.boundIndex()
}

// checkGroups is rule R9.
func (l *Log) checkGroups() error {
	for _, g := range l.allGroups() {
		if err := l.checkGroup(g, g.start.index+1); err != nil {
			return err
		}
	}
	return nil
}

// checkGroup is rule R9 for the entries of one group from first on.
func (l *Log) checkGroup(g *Group, first uint64) error {
	lo, hi, missing := g.index.gap(first)
	if !missing {
		return nil
	}
	m := g.index.at(hi)
	return &CorruptError{File: l.segmentPath(uint64(m.segment)), Offset: int64(m.off), Group: g.id, Index: lo, Through: hi - 1,
		Reason: fmt.Sprintf("entries from %d on are here, those before them are nowhere; a segment is missing", hi)}
}

// lookBeyond searches what follows the valid records for headers that are valid by themselves.
func (t *trace) lookBeyond(data []byte) {
	size := int64(len(data))
	t.written = t.end
	if t.why != flawZero && t.why != flawShort {
		t.written = min(t.end+recordHead, size)
	}
	for off := t.end; off+recordAlign <= size; off += recordAlign {
		off += int64(firstNonZero(data[off:])) &^ (recordAlign - 1)
		if off+recordAlign > size {
			return
		}
		if data[off] != recordMagic {
			continue
		}
		if h, why := parseHeader(data[off:], t.seg.id, off); why == flawNone {
			t.later = true
			t.laterMarked = max(t.laterMarked, int64(h.durable))
			t.written = max(t.written, off+h.bytes())
		}
	}
}

// clampCommits lowers commit indexes to the last entry, and returns the groups it did that to, in order. A commit
// index needs no sync, so a torn tail may have kept one and lost the entries it speaks of.
func (l *Log) clampCommits() []*Group {
	var clamped []*Group
	for _, g := range l.allGroups() {
		if g.hs.Commit > g.last {
			g.hs.Commit = g.last
			clamped = append(clamped, g)
		}
	}
	return clamped
}

// removeEmpty removes the segments that hold no valid record, the highest first: segments prepared ahead, creations
// cut short, and one whose very first batch was torn.
func (l *Log) removeEmpty(found traces) error {
	for i := len(found) - 1; i >= 0 && found[i].records == 0; i-- {
		s := found[i].seg
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

// adoptTail makes the segment of t the one that is written, after making sure that what it shows is durable.
func (l *Log) adoptTail(t *trace) error {
	s := t.seg
	s.end, s.chain = t.end, t.chain
	if cut := t.written - t.end; cut > 0 {
		l.opts.Logger.Warn(TornTail, "file", s.path, "offset", t.end, "bytes", cut, "reason", string(t.why))
	}
	tail := make([]byte, t.written-t.marked)
	if len(tail) > 0 {
		if err := s.readAt(tail[:t.end-t.marked], t.marked); err != nil {
			return err
		}
		if _, err := s.file.WriteAt(tail, t.marked); err != nil {
			return fmt.Errorf("rewrite of %s at offset %d: %w", s.path, t.marked, err)
		}
	}
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("sync of %s: %w", s.path, err)
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
	if t.dataEnd > t.marked {
		l.unmarked = true
		if s.end+2*recordHead <= s.size { // this one and the one of Close
			if err := l.mark(); err != nil {
				return err
			}
		}
	}
	// Seen in seed 21 of TestCrash: a lowered commit index that is not written down comes back at the next recovery,
	// and then speaks of whatever was appended since.
	for _, g := range l.clampCommits() {
		at, err := l.putHardState(g.id, g.hs)
		if err != nil {
			return err
		}
		g.hsAt = at
	}
	return l.flush()
}
