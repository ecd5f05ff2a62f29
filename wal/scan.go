package wal

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// This file reads segments and judges what ends them: rules R1 to R5, R7, R8, R10 and, record by record,
// R11. R12 is in missing.go.

// flawTornBefore is a flaw that a record does not show by itself.
const flawTornBefore record.Flaw = "it was written before the segment before it was synced, and that one is torn"

// trace is what the scan of one segment found.
type trace struct {
	seg  *segment
	head bool // the segment header is valid

	atomic bool // its records follow the rules of version 3

	records   int           // valid records from the start
	link      record.End    // what the first of them says
	chain     uint32        // after the last of them
	end       int64         // after the last of them
	dataEnd   int64         // after the last that is neither a watermark record nor a void
	watermark int64         // the highest watermark in them
	why       record.Flaw   // what is at end
	broken    record.Header // the header at end, if it can be read
	reached   bool          // the end that FENCE knows is one of a record here, or the header's

	later          bool  // there is a valid header at or after end
	laterWatermark int64 // the highest watermark in those
	proof          bool  // a valid header says that the segment before was synced: its watermark is not 0
	beforeFlaw     error // what is wrong with the segment before, if that is no reason to refuse the log as long as none follows
	written        int64 // after the last byte that must be overwritten, if the log continues in this segment

	headless bool       // no header, and something behind it
	lost     lostBlocks // that the disk could not return
	reread   error      // of a block that it returned at the second attempt
}

// torn reports whether the valid records of t end in anything else than an append leaves (rule R10).
func (t *trace) torn() bool { return t.why != record.FlawZero && t.why != record.FlawShort || t.later }

// holds reports whether a record was ever written to the segment, whether or not one survives.
func (t *trace) holds() bool { return t.records > 0 || t.later }

// corrupt returns the error for the place where the valid records of t end.
func (t *trace) corrupt(reason string) error {
	return t.blameDisk(&CorruptError{File: t.seg.path, Offset: t.end, Group: t.broken.Group, Index: t.broken.Index, Reason: reason})
}

// traces are the segments of a directory, in order.
type traces []*trace

// last returns the last segment with valid records, in which the log continues, or nil.
func (ts traces) last() *trace {
	for i := len(ts) - 1; i >= 0; i-- {
		if ts[i].records > 0 {
			return ts[i]
		}
	}
	return nil
}

// scan is what reading a log's directory found: what each segment holds, how FENCE remembers the log, and
// groups and segments as the records leave them. Open turns one into a log (recover.go); an inspection is one
// (inspect.go). It changes nothing on disk.
type scan struct {
	dir     directory
	owner   uint64 // the host that the log must belong to
	threads int
	logger  *slog.Logger
	damage  *damage // where the log stops being acceptable, if that is known before

	past   past     // the log's last life
	names  []string // in the directory
	traces traces   // of the segments that were accepted
	table  *table

	logID       record.LogID // from FENCE, or from the segments of a log without one
	newest      uint64       // the highest generation that segments and watermark records name
	firstNeeded uint64       // from fronts: the segments before it are not needed
	unfinished  unfinished
	tip         record.End // how the last segment read that has records ended
	lastRead    uint64     // the last segment read
	rereads     []rereadBlock
}

// newScan returns a scan that has read nothing. Options have their defaults; d is nil unless the log is known
// to be corrupt.
func newScan(opts Options, d *damage) *scan {
	return &scan{
		dir: opts.directory(), owner: opts.Owner, threads: scanThreads(opts.FS, opts.ScanThreads), logger: opts.Logger, damage: d,
		table: newTable(opts),
	}
}

// read reads and checks all segments, and replays their records. It stops at the first thing that is wrong.
// It changes nothing, except that the names it saw are durable when it returns.
func (sc *scan) read() (err error) {
	if sc.names, err = sc.dir.fs.ReadDir(sc.dir.path); err != nil {
		return err
	}
	if err := sc.recallFence(); err != nil {
		return err
	}
	if f := &sc.past.fence; f.has(flagMade) && f.owner != sc.owner {
		return wrongOwner(sc.dir.fencePath(), f.owner, sc.owner)
	}
	if err := vfs.SyncDir(sc.dir.fs, sc.dir.path); err != nil {
		return err
	}
	if err := sc.rejectDraft(sc.names); err != nil {
		return err
	}
	if err := sc.readSegments(); err != nil {
		return err
	}
	if err := sc.checkTail(); err != nil {
		return err
	}
	sc.skipFront()
	if sc.damage != nil {
		return sc.findHoles(sc.names)
	}
	if err := sc.checkFence(); err != nil {
		return err
	}
	if err := sc.traces.checkFront(sc.firstNeeded); err != nil {
		return err
	}
	if err := sc.checkEnd(); err != nil {
		return err
	}
	return sc.checkGroups()
}

// readSegments reads and applies the segments that may be accepted, in order.
func (sc *scan) readSegments() error {
	var ids []uint64
	for _, name := range sc.names { // the order of names is the order of ids
		if id, ok := record.ParseSegmentName(name); ok && !sc.damage.excludes(id) {
			ids = append(ids, id)
		}
	}
	var before *trace // the segment before, if any
	return ahead(sc.threads, len(ids), func(i int, buf []byte) (contents, []byte) {
		return sc.load(ids[i], buf)
	}, func(_ int, c contents) error {
		if err := sc.apply(c); err != nil {
			return err
		}
		sc.traces = append(sc.traces, c.trace)
		err := c.trace.follows(before)
		before = c.trace
		return err
	})
}

// close closes the files of the segments.
func (sc *scan) close() error { return errors.Join(sc.table.closeSegments()...) }

// wrongOwner is the error for a file that another host wrote.
func wrongOwner(file string, have, want uint64) error {
	return fmt.Errorf("%w: %s was written by host %d, this is host %d; give each host its own directory", ErrOwner, file, have, want)
}

func (t *trace) corruptAt(off int64, reason string) error {
	return t.blameDisk(&CorruptError{File: t.seg.path, Offset: off, Reason: reason})
}

// checkFront checks rule R7.
func (ts traces) checkFront(front uint64) error {
	if len(ts) == 0 || ts[0].records == 0 || ts[0].link.Segment == 0 || ts[0].seg.id <= front {
		return nil
	}
	return &CorruptError{File: ts[0].seg.path, Reason: fmt.Sprintf("it says that segment %s came before it, which is missing", record.SegmentName(ts[0].link.Segment)), missing: true}
}

// checkTail checks the segments whose end no link names: the last one with valid records, and a torn one
// after it.
func (sc *scan) checkTail() error {
	tail := sc.traces.last()
	for _, t := range sc.traces {
		if err := t.checkEnd(t == tail); err != nil {
			return err
		}
		if t.cutsOff(tail) {
			if err := sc.checkKill(t); err != nil {
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
		return t.corrupt(fmt.Sprintf("%s, but the file was long enough when the record was written: its end is missing", t.why))
	}
	if (tail || t.records == 0 && t.later) && t.laterWatermark > t.end {
		return t.corrupt(fmt.Sprintf("%s, but a later record says that everything up to %d was durable", t.why, t.laterWatermark))
	}
	return nil
}

// contents is a segment that was read and checked by itself, but not applied yet.
type contents struct {
	trace *trace
	data  []byte // what is accepted of it
	err   error  // the first that reading it met
}

// load reads one segment into buf, or into a larger buffer if buf is too small, and returns the buffer that
// it used. It runs the checks that need no other segment. Several segments may be loaded at the same time.
func (sc *scan) load(id uint64, buf []byte) (contents, []byte) {
	c := contents{trace: &trace{seg: &segment{id: id, path: sc.table.segmentPath(id), cold: &sc.table.cold}}}
	if buf, c.err = sc.readSegment(c.trace, buf); c.err == nil {
		c.data = sc.damage.cut(id, buf)
		c.trace.check(c.data)
	}
	return c, buf
}

// readSegment reads the segment of t into buf, which it may replace.
func (sc *scan) readSegment(t *trace, buf []byte) ([]byte, error) {
	s := t.seg
	if s.id > maxSegmentID {
		return buf, &CorruptError{File: s.path, Reason: fmt.Sprintf("its name says segment %d, but the highest possible is %d", s.id, uint64(maxSegmentID))}
	}
	f, err := sc.dir.fs.Open(s.path)
	if err != nil {
		return buf, err
	}
	s.file = f
	sc.table.addSegment(s)
	defer sc.table.cold.adopt(s)
	size, err := f.Size()
	if err != nil {
		return buf, err
	}
	if size > maxFileBytes { // before it is read whole
		return buf, &CorruptError{File: s.path, Reason: fmt.Sprintf("the file has %d bytes, but a segment has at most %d", size, int64(maxFileBytes))}
	}
	s.size = size &^ (record.Alignment - 1)
	if s.size > int64(cap(buf)) {
		buf = make([]byte, s.size)
	}
	buf = buf[:sc.damage.accepts(s.id, s.size)]
	return buf, t.readContents(buf)
}

// check finds where the valid records of data end, and what is there. data is the contents of the
// segment of t, and is not trusted.
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

// apply replays the records of a segment after those of all segments before it.
func (sc *scan) apply(c contents) error {
	t := c.trace
	sc.reportLost(t)
	defer func() { sc.lastRead = t.seg.id }()
	switch {
	case c.err != nil:
		return c.err
	case t.headless:
		return t.corruptAt(0, "the segment header is damaged")
	case !t.head:
		// A crash cut short the creation of this segment, as nothing follows: the header is durable before
		// a record is written, and before a file that holds other bytes gets this name.
		return nil
	}
	head, _ := record.ParseSegmentHeader(c.data)
	if err := sc.acceptHeader(t, head); err != nil {
		return err
	}
	return sc.replaySegment(t, head, c.data)
}

// acceptHeader rejects the segment of another log, host, place or version.
func (sc *scan) acceptHeader(t *trace, head record.SegmentHeader) error {
	s := t.seg
	switch {
	case head.Version < record.FirstVersion || head.Version > record.FormatVersion:
		return fmt.Errorf("%w: %s has version %d, this program knows %d to %d; use a newer program", ErrVersion, s.path, head.Version, record.FirstVersion, record.FormatVersion)
	case head.Owner != sc.owner:
		return wrongOwner(s.path, head.Owner, sc.owner)
	case head.ID != s.id:
		return t.corruptAt(0, fmt.Sprintf("the file is segment %d by its header; it was renamed", head.ID))
	}
	if t.atomic {
		if sc.logID == (record.LogID{}) && (sc.past.lost || sc.past.fence.version < fenceVersion) {
			sc.logID = head.Log // the others must be of the same
		}
		if head.Log != sc.logID {
			return t.corruptAt(0, fmt.Sprintf("it belongs to log %s, but this is log %s; another log's files were put here", head.Log, sc.logID))
		}
		sc.newest = max(sc.newest, uint64(head.Generation))
		if sc.damage.cuts(s.id) {
			s.size = max(s.size, head.Size) // of the copy that takes its place
		}
	}
	return nil
}

// replaySegment applies the records of t, which check has found to be valid by themselves.
func (sc *scan) replaySegment(t *trace, head record.SegmentHeader, data []byte) error {
	s, end := t.seg, t.end
	t.end, t.dataEnd, t.watermark, t.chain = record.SegmentHeaderBytes, record.SegmentHeaderBytes, record.SegmentHeaderBytes, head.CRC
	for {
		if past := sc.past.fence.end; past.Segment == s.id && past.Offset == t.end {
			t.reached = past.Chain == t.chain
		}
		if t.end == end {
			break
		}
		h, why := record.ParseHeader(data[t.end:], head.Seal(), t.end)
		if why != record.FlawNone {
			return t.corrupt(string(why)) // unheard of: it was valid a moment ago
		}
		body := data[t.end+record.HeaderBytes:][:h.Length]
		if h.Kind == record.KindLink && t.end == record.SegmentHeaderBytes && sc.goesWithTorn(t, record.ParseLink(h, body), data) {
			return nil
		}
		if err := sc.replay(t, h, body); err != nil {
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
	s.zeroed.Store(t.end &^ blockMask) // of what is behind it nothing is known
	if t.records > 0 {
		sc.tip = record.End{Segment: s.id, Offset: t.end, Chain: t.chain}
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
			off += h.Bytes() - record.Alignment // what looks like a header in its body is data
		}
	}
}
