package wal

import (
	"encoding/binary"
	"fmt"
)

// This file applies records to groups, as a recovery finds them.

// replay applies one valid record, by rules R5 and R11.
func (l *Log) replay(t *trace, h header, body []byte) error {
	if (h.kind == kindLink) != (t.end == segmentHead) {
		return &CorruptError{File: t.seg.path, Offset: t.end, Group: h.group, Index: h.index, Reason: fmt.Sprintf("a %s record stands where it must not", h.kind)}
	}
	if atomic := h.version >= writesVersion; atomic != t.atomic {
		return &CorruptError{File: t.seg.path, Offset: t.end, Group: h.group, Index: h.index, rule: "R3",
			Reason: fmt.Sprintf("a record of version %d stands in a segment of other rules", h.version)}
	}
	if h.kind == kindLink {
		t.link = linkOf(h, body)
		if t.link != l.tip {
			l.indexes.wall(t.seg.id)
		}
		l.unfinished.enter(t.link, l.tip)
		return nil
	}
	if reason := l.unfinished.reject(h); reason != "" {
		return &CorruptError{File: t.seg.path, Offset: t.end, Group: h.group, Index: h.index, rule: "R11", Reason: reason}
	}
	where := spot{segment: t.seg.id, off: t.end, end: t.end + h.bytes(), seed: t.chain}
	switch {
	case h.kind == kindVoid:
		l.replayVoid(h.group)
	case h.kind.inWrite() && t.atomic:
		l.replayWrite(h, newPart(h, body, where))
	case h.kind.inWrite() || h.kind == kindMoved:
		l.unfinished.headless = false
		l.replayPart(l.Group(h.group), newPart(h, body, where))
	default: // a mark, or a front
		l.unfinished.headless = false
		if h.kind == kindFront {
			l.front = max(l.front, h.index)
		} else {
			l.newest = max(l.newest, h.index)
		}
	}
	return nil
}

// linkOf returns what a link says of the segment before it.
func linkOf(h header, body []byte) sealed {
	return sealed{id: h.index, end: int64(h.term), chain: uint32(binary.LittleEndian.Uint64(body))}
}

// replayPart applies a record of one group. It takes what it gets: rule R9 is checked when all is applied, since of a
// log whose front was dropped, entries come before what they stand on.
func (l *Log) replayPart(g *Group, p part) {
	switch p.kind {
	case kindDelete:
		g.forget()
		l.forget(g)
	case kindHardState:
		g.setHardState(p.hardState())
		g.pinHardState(uint64(p.segment))
		g.loose = p.version < writesVersion
	case kindTruncate:
		g.truncate(p.index)
	case kindBase, kindReset:
		g.begin(p.kind, entryID{p.index, p.term})
		g.pinStart(uint64(p.segment))
	case kindEntry:
		g.place(p.index, p.term, p.where())
	case kindMoved:
		g.move(p.index, p.term, p.where())
	}
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
