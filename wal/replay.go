package wal

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
)

// This file applies records to groups, as a recovery finds them.

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
	marks := cap(g.index.marks)
	switch h.kind {
	case kindHardState:
		g.setHardState(raftpb.HardState{
			Term:   h.term,
			Vote:   binary.LittleEndian.Uint64(body[0:]),
			Commit: binary.LittleEndian.Uint64(body[8:]),
		})
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
	l.marks += cap(g.index.marks) - marks
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
	return &CorruptError{File: l.segmentPath(uint64(m.segment)), Offset: int64(m.off), Group: g.id, Index: lo, Through: hi - 1, missing: true,
		Reason: fmt.Sprintf("entries from %d on are here, those before them are nowhere; a segment is missing", hi)}
}
