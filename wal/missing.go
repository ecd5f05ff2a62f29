package wal

import (
	"fmt"

	"github.com/millrace/millrace/wal/record"
)

// This file notices what is missing. A crash takes nothing durable, but a deleted file, a copy that was cut
// short, a file system check or another log's files do, and the rest can look whole. Three things tell:
//
//   - the names and headers of segments (follows). A segment is durable, with name, header and length,
//     before the next one is made, and empty ones are removed from the highest down. So ids have no gap,
//     and only the highest segment may lack its header or its length;
//   - FENCE (checkFence, checkEnd). It is durable before the first segment is made. It says which log it
//     belongs to, that there is one, and how far it reached;
//   - the segments, of FENCE. Segments of version 3 were written beside a fence whose generation was not
//     lower than theirs.
//
// Two losses cannot be noticed: records behind the end that FENCE knows, if the file holds zeros where they
// began, and whole segments behind that end, if no later one is left. After a clean Close the end is known
// exactly; otherwise it is where the log ended when it was last opened.
//
// Open and Inspect judge by the same functions. If several things are wrong, Open reports the first.

// short reports whether the file of t has lost its end.
func (t *trace) short() bool { return t.head && t.seg.size < t.seg.head.Size }

func (t *trace) cutShort() error {
	return t.corrupt(fmt.Sprintf("the file has %d bytes, and had %d when it was made: its end is missing", t.seg.size, t.seg.head.Size))
}

// checkFence checks that there is a fence, and that it is not older than the segments (rule R12).
func (sc *scan) checkFence() error {
	if sc.past.lost {
		return nil // which is known already
	}
	if sc.past.fence.version == fenceVersion {
		if sc.newest > sc.past.fence.generation {
			return sc.corruptFence(fmt.Sprintf("it is an older copy: it has generation %d, and the segments name %d", sc.past.fence.generation, sc.newest))
		}
		return nil
	}
	for _, t := range sc.traces {
		if !t.atomic || !t.holds() {
			continue
		}
		reason := fmt.Sprintf("it is missing, but %s was written beside one", record.SegmentName(t.seg.id))
		if sc.past.fence.version > 0 {
			reason = fmt.Sprintf("it has version %d, but %s was written beside one of version %d", sc.past.fence.version, record.SegmentName(t.seg.id), fenceVersion)
		}
		return sc.corruptFence(reason)
	}
	return nil
}

func (sc *scan) corruptFence(reason string) *CorruptError {
	return &CorruptError{File: sc.dir.fencePath(), Reason: reason, rule: ruleFence}
}

// checkEnd checks that the log has a beginning, and that it reaches as far as the fence says (rule R12).
func (sc *scan) checkEnd() error {
	f, ts := &sc.past.fence, sc.traces
	if sc.past.lost || !f.has(flagMade) {
		return nil
	}
	if len(ts) == 0 {
		err := sc.corruptFence("it says that there is a log, but there is no segment")
		err.missing = true
		return err
	}
	first := ts[0]
	switch {
	case !first.head:
		return first.corruptAt(0, "the segment header is damaged, and it is the first segment")
	case first.short():
		return first.cutShort()
	case f.end.Segment == 0:
		return nil // no end is known
	case f.end.Segment < first.seg.id && !f.has(flagClosed):
		return nil // dropped since
	}
	t := ts.segment(f.end.Segment)
	switch {
	case t == nil || !t.head:
		return &CorruptError{File: sc.table.segmentPath(f.end.Segment), rule: "R12", missing: true, Reason: "FENCE says that the log reached into this segment, but it is missing"}
	case t.end < f.end.Offset:
		return t.wrongEnd(fmt.Sprintf("%s, but FENCE says that the log reached offset %d", t.endsIn(), f.end.Offset))
	case !t.reached:
		return t.wrongEnd(fmt.Sprintf("FENCE names an end at offset %d with chain %08x, and no record ends so: the log or FENCE is from another time", f.end.Offset, f.end.Chain))
	case !f.has(flagClosed):
		return nil
	}
	if t.end > f.end.Offset {
		return t.wrongEnd(fmt.Sprintf("FENCE says that the log was closed at offset %d, but it continues to %d: FENCE is an older copy", f.end.Offset, t.end))
	}
	if last := ts.last(); last != nil && last.seg.id > t.seg.id {
		return last.wrongEnd(fmt.Sprintf("FENCE says that the log was closed in %s, but it continues here: FENCE is an older copy", record.SegmentName(t.seg.id)))
	}
	return nil
}

// segment returns the trace of a segment, or nil.
func (ts traces) segment(id uint64) *trace {
	for _, t := range ts {
		if t.seg.id == id {
			return t
		}
	}
	return nil
}

// endsIn says in words what ends the records of t.
func (t *trace) endsIn() string {
	if t.why == record.FlawShort && t.end == t.seg.size {
		return "the file ends"
	}
	return string(t.why)
}

// wrongEnd returns the error for an end of t that is not the log's. If nothing is behind it, a salvage
// has nothing to set aside.
func (t *trace) wrongEnd(reason string) error {
	return t.blameDisk(&CorruptError{File: t.seg.path, Offset: t.end, Group: t.broken.Group, Index: t.broken.Index, Reason: reason, rule: "R12", missing: t.written == t.end})
}
