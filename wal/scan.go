package wal

import (
	"fmt"

	"github.com/millrace/millrace/wal/record"
)

// This file reads segments, and judges what ends them (rules R1 to R5, R7, R8, R10 and, record by record, R11; R12
// is in missing.go). It changes nothing.

// Flaws that a record does not show by itself.
const (
	flawTornBefore record.Flaw = "it was written before the segment before it was synced, and that one is torn"
	flawLost       record.Flaw = "the disk cannot read the record"
)

// trace is what the scan of one segment found.
type trace struct {
	seg  *segment
	head bool // the segment header is valid

	atomic bool // its records follow the rules of version 3

	records   int           // valid records from the start
	link      record.End    // what the first of them says
	chain     uint32        // after the last of them
	end       int64         // after the last of them
	dataEnd   int64         // after the last that is not a mark or a void
	watermark int64         // the highest watermark in them
	why       record.Flaw   // what is at end
	broken    record.Header // the header at end, if it can be read
	reached   bool          // the end that FENCE knows is one of a record here, or the header's

	later          bool  // there is a valid header at or after end
	laterWatermark int64 // the highest watermark in those
	proof          bool  // a valid header says that the segment before was synced: its watermark is not 0
	beforeFlaw     error // what is wrong with the segment before, if that is no reason to refuse the log as long as none follows
	written        int64 // after the last byte that must be overwritten, if the segment is gone on with

	headless bool       // no header, and something behind it
	lost     lostBlocks // that the disk could not return
	reread   error      // of a block that it returned at the second attempt
}

// torn reports whether the valid records of t end in something else than an append's end (rule R10).
func (t *trace) torn() bool { return t.why != record.FlawZero && t.why != record.FlawShort || t.later }

// holds reports whether a record was ever written to the segment, whether or not one survives.
func (t *trace) holds() bool { return t.records > 0 || t.later }

// corrupt describes the place where the valid records of t end.
func (t *trace) corrupt(reason string) error {
	return t.blameDisk(&CorruptError{File: t.seg.path, Offset: t.end, Group: t.broken.Group, Index: t.broken.Index, Reason: reason})
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
	if err := l.recallFence(); err != nil {
		return nil, nil, err
	}
	if l.past.has(flagMade) && l.past.owner != l.opts.Owner {
		return nil, nil, fmt.Errorf("%w: %s was written by host %d, this is host %d; give each host a directory of its own", ErrOwner, l.fencePath(), l.past.owner, l.opts.Owner)
	}
	if err := l.opts.FS.SyncDir(l.opts.Dir); err != nil {
		return nil, nil, err
	}
	if err := l.rejectDraft(names); err != nil {
		return nil, nil, err
	}
	var ids []uint64
	for _, name := range names { // the order of names is the order of ids
		if id, ok := record.ParseSegmentName(name); ok && !l.damage.excludes(id) {
			ids = append(ids, id)
		}
	}
	var before *trace // the segment before, if any
	err = ahead(scanThreads(l.opts.FS, l.opts.ScanThreads), len(ids), func(i int, buf []byte) (contents, []byte) {
		return l.load(ids[i], buf)
	}, func(_ int, c contents) error {
		if err := l.apply(c); err != nil {
			return err
		}
		found = append(found, c.trace)
		err := c.trace.follows(before)
		before = c.trace
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if err := l.checkTail(found); err != nil {
		return nil, nil, err
	}
	l.skipFront()
	if l.damage != nil {
		return found, names, l.findHoles(names)
	}
	if err := l.checkFence(found); err != nil {
		return nil, nil, err
	}
	if err := found.checkFront(l.firstNeeded); err != nil {
		return nil, nil, err
	}
	if err := l.checkEnd(found); err != nil {
		return nil, nil, err
	}
	return found, names, l.checkGroups()
}

func (t *trace) corruptAt(off int64, reason string) error {
	return t.blameDisk(&CorruptError{File: t.seg.path, Offset: off, Reason: reason})
}

// checkFront is rule R7.
func (ts traces) checkFront(front uint64) error {
	if len(ts) == 0 || ts[0].records == 0 || ts[0].link.Segment == 0 || ts[0].seg.id <= front {
		return nil
	}
	return &CorruptError{File: ts[0].seg.path, Reason: fmt.Sprintf("it says that segment %s came before it, which is missing", record.SegmentName(ts[0].link.Segment)), missing: true}
}

// checkTail checks the segments that no link vouches for: the last with valid records and a torn one after it.
func (l *Log) checkTail(ts traces) error {
	tail := ts.last()
	for _, t := range ts {
		if err := t.checkEnd(t == tail); err != nil {
			return err
		}
		if t.cutsOff(tail) {
			if err := l.checkKill(t); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *trace) checkEnd(tail bool) error {
	if t.holds() && t.short() {
		return t.cutShort()
	}
	if t.atomic && t.why == record.FlawShort && t.broken.Kind != 0 { // a header, and not the file's last bytes
		return t.corrupt(fmt.Sprintf("%s, and was long enough when that was written: its end is missing", t.why))
	}
	if (tail || t.records == 0 && t.later) && t.laterWatermark > t.end {
		return t.corrupt(fmt.Sprintf("%s, but a later record says that everything up to %d was durable", t.why, t.laterWatermark))
	}
	return nil
}

// contents is a segment that was read and checked by itself, and not applied yet.
type contents struct {
	trace *trace
	data  []byte // what is accepted of it
	err   error  // the first that reading it met
}

// load reads one segment into buf, which it may replace, and checks its records: all that needs no other segment. Several
// may be loaded at once.
func (l *Log) load(id uint64, buf []byte) (contents, []byte) {
	c := contents{trace: &trace{seg: &segment{id: id, path: l.segmentPath(id), cold: &l.cold}}}
	if buf, c.err = l.read(c.trace, buf); c.err == nil {
		c.data = l.damage.cut(id, buf)
		c.trace.check(c.data)
	}
	return c, buf
}

// read reads the segment of t into buf, which it may replace.
func (l *Log) read(t *trace, buf []byte) ([]byte, error) {
	s := t.seg
	if s.id > maxSegmentID {
		return buf, &CorruptError{File: s.path, Reason: fmt.Sprintf("its name says segment %d, and no log has one above %d", s.id, uint64(maxSegmentID))}
	}
	f, err := l.opts.FS.Open(s.path)
	if err != nil {
		return buf, err
	}
	s.file = f
	l.addSegment(s)
	defer l.cold.adopt(s)
	size, err := f.Size()
	if err != nil {
		return buf, err
	}
	if size > maxFileBytes { // before it is read whole
		return buf, &CorruptError{File: s.path, Reason: fmt.Sprintf("the file has %d bytes, and a segment never more than %d", size, int64(maxFileBytes))}
	}
	s.size = size &^ (record.Alignment - 1)
	if s.size > int64(cap(buf)) {
		buf = make([]byte, s.size)
	}
	buf = buf[:l.damage.accepts(s.id, s.size)]
	return buf, t.readContents(buf)
}

// check finds where the valid records of data end, the contents of the segment of t, and what is there. It believes nothing.
func (t *trace) check(data []byte) {
	head, ok := record.ParseSegmentHeader(data)
	t.head, t.seg.head = ok, head
	t.end, t.chain = record.SegmentHeaderBytes, head.CRC
	if !ok {
		t.written = t.end
		t.headless = !record.AllZero(data[min(record.SegmentHeaderBytes, len(data)):])
		return
	}
	if head.Version >= record.FirstVersion && head.Version <= record.FormatVersion && head.ID == t.seg.id {
		t.atomic = head.Version >= record.AtomicVersion
		for {
			h, _, why := record.Parse(data[min(t.end, int64(len(data))):], head.Seal(), t.end, t.chain)
			if why != record.FlawNone {
				t.why, t.broken = why, h
				break
			}
			t.proof = t.proof || h.Durable > 0
			t.end += h.Bytes()
			t.chain = h.Chain
		}
	}
	t.lookBeyond(data)
	t.judgeLost()
}

// apply replays the records of a segment, behind those of all before it.
func (l *Log) apply(c contents) error {
	t, s := c.trace, c.trace.seg
	l.reportLost(t)
	defer func() { l.lastRead = s.id }()
	if c.err != nil {
		return c.err
	}
	head, _ := record.ParseSegmentHeader(c.data)
	switch {
	case t.headless:
		return t.corruptAt(0, "the segment header is damaged")
	case !t.head:
		// Made by a creation that a crash cut short, as nothing follows: the header is durable before a record is written, and
		// before a file that has others gets this name.
		return nil
	case head.Version < record.FirstVersion || head.Version > record.FormatVersion:
		return fmt.Errorf("%w: %s has version %d, this program knows %d to %d; use a newer one", ErrVersion, s.path, head.Version, record.FirstVersion, record.FormatVersion)
	case head.Owner != l.opts.Owner:
		return fmt.Errorf("%w: %s was written by host %d, this is host %d; give each host a directory of its own", ErrOwner, s.path, head.Owner, l.opts.Owner)
	case head.ID != s.id:
		return t.corruptAt(0, fmt.Sprintf("the file is segment %d by its header; somebody renamed it", head.ID))
	}
	if t.atomic {
		if l.logID == (record.LogID{}) && (l.pastLost || l.past.version < fenceVersion) {
			l.logID = head.Log // the others must be of the same
		}
		if head.Log != l.logID {
			return t.corruptAt(0, fmt.Sprintf("it belongs to log %s, and this is log %s; somebody put another log's files here", head.Log, l.logID))
		}
		l.newest = max(l.newest, uint64(head.Generation))
		if l.damage.cuts(s.id) {
			s.size = max(s.size, head.Size) // of the copy that takes its place
		}
	}
	end := t.end
	t.end, t.dataEnd, t.watermark, t.chain = record.SegmentHeaderBytes, record.SegmentHeaderBytes, record.SegmentHeaderBytes, head.CRC
	for {
		if past := l.past.end; past.Segment == s.id && past.Offset == t.end {
			t.reached = past.Chain == t.chain
		}
		if t.end == end {
			break
		}
		h, why := record.ParseHeader(c.data[t.end:], head.Seal(), t.end)
		if why != record.FlawNone {
			return t.corrupt(string(why)) // unheard of: it was valid a moment ago
		}
		body := c.data[t.end+record.HeaderBytes:][:h.Length]
		if h.Kind == record.KindLink && t.end == record.SegmentHeaderBytes && l.goesWithTorn(t, record.ParseLink(h, body), c.data) {
			return nil
		}
		if err := l.replay(t, h, body); err != nil {
			return err
		}
		t.records++
		t.watermark = max(t.watermark, int64(h.Durable))
		t.end += h.Bytes()
		t.chain = h.Chain
		if h.Kind != record.KindWatermark && h.Kind != record.KindVoid {
			t.dataEnd = t.end
		}
	}
	if t.why == record.FlawVersion {
		return fmt.Errorf("%w: %s has a record at offset %d of another version than %d to %d; use a newer program", ErrVersion, s.path, t.end, record.FirstVersion, record.FormatVersion)
	}
	if t.records > 0 {
		l.tip = record.End{Segment: s.id, Offset: t.end, Chain: t.chain}
	}
	return nil
}

// lookBeyond searches what follows the valid records for headers that are valid by themselves.
func (t *trace) lookBeyond(data []byte) {
	size := int64(len(data))
	t.written = t.end
	if t.why != record.FlawZero && t.why != record.FlawShort {
		t.written = min(t.end+record.HeaderBytes, size)
	}
	for off := t.end; off+record.Alignment <= size; off += record.Alignment {
		off += int64(record.FirstNonZero(data[off:])) &^ (record.Alignment - 1)
		if off+record.Alignment > size {
			return
		}
		if data[off] != record.Magic {
			continue
		}
		if h, why := record.ParseHeader(data[off:], t.seg.head.Seal(), off); why == record.FlawNone {
			t.later = true
			t.proof = t.proof || h.Durable > 0
			t.laterWatermark = max(t.laterWatermark, int64(h.Durable))
			t.written = max(t.written, off+h.Bytes())
			off += h.Bytes() - record.Alignment // what looks like a header in its body is somebody's data
		}
	}
}
