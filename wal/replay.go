package wal

import (
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal/record"
)

// This file applies records to groups, as a recovery finds them.

// replay applies one valid record, and checks rules R5 and R11.
func (sc *scan) replay(t *trace, h record.Header, body []byte) error {
	if (h.Kind == record.KindLink) != (t.end == record.SegmentHeaderBytes) {
		return &CorruptError{File: t.seg.path, Offset: t.end, Group: h.Group, Index: h.Index, Reason: fmt.Sprintf("a %s record must not stand here", h.Kind)}
	}
	if atomic := h.Version >= record.AtomicVersion; atomic != t.atomic {
		return &CorruptError{File: t.seg.path, Offset: t.end, Group: h.Group, Index: h.Index, rule: "R3",
			Reason: fmt.Sprintf("a record of version %d is in a segment with the rules of another version", h.Version)}
	}
	if h.Kind == record.KindLink {
		t.link = record.ParseLink(h, body)
		if t.link != sc.tip {
			sc.table.indexes.wall(t.seg.id)
		}
		sc.unfinished.enter(t.link, sc.tip)
		return nil
	}
	if reason := sc.unfinished.reject(h); reason != "" {
		return &CorruptError{File: t.seg.path, Offset: t.end, Group: h.Group, Index: h.Index, rule: "R11", Reason: reason}
	}
	where := spot{segment: t.seg.id, off: t.end, end: t.end + h.Bytes(), seed: t.chain}
	switch {
	case h.Kind == record.KindVoid:
		sc.replayVoid(h.Group)
	case h.Kind.InWrite() && t.atomic:
		sc.replayWrite(h, newPart(h, body, where))
	case h.Kind.InWrite() || h.Kind == record.KindMoved:
		sc.unfinished.headless = false
		sc.replayPart(sc.table.group(h.Group), newPart(h, body, where))
	default: // a watermark record, or a front
		sc.unfinished.headless = false
		if h.Kind == record.KindFront {
			sc.firstNeeded = max(sc.firstNeeded, h.Index)
		} else {
			sc.newest = max(sc.newest, h.Index)
		}
	}
	return nil
}

// replayPart applies a record of one group. It does not check rule R9, which is checked when everything is
// applied: in a log whose first segments were dropped, entries come before the base that they follow.
func (sc *scan) replayPart(g *Group, p part) {
	if g.deleted && p.kind != record.KindDeletion {
		g = sc.table.revive(g.id)
	}
	switch p.kind {
	case record.KindDeletion:
		g.forget()
		sc.table.bury(g.id, uint64(p.segment))
	case record.KindHardState:
		g.setHardState(p.hardState())
		g.pinHardState(uint64(p.segment))
		g.loose = p.version < record.AtomicVersion
	case record.KindTruncation:
		g.truncate(p.index)
	case record.KindBase, record.KindReset:
		g.begin(p.kind, raftpb.EntryID{Index: p.index, Term: p.term})
		g.pinStart(uint64(p.segment))
	case record.KindEntry:
		g.setPlace(p.index, p.term, p.typ, p.where())
	case record.KindMoved:
		g.move(p.index, p.term, p.typ, p.where())
	}
	sc.table.boundIndex()
}

// checkGroups checks rule R9.
func (sc *scan) checkGroups() error {
	for _, g := range sc.table.allGroups() {
		if err := sc.checkGroup(g, g.start.Index+1); err != nil {
			return err
		}
	}
	return nil
}

// checkGroup checks rule R9 for the entries of one group at and above first.
func (sc *scan) checkGroup(g *Group, first uint64) error {
	lo, hi, missing := g.index.gap(first)
	if !missing {
		return nil
	}
	m := g.index.at(hi)
	return &CorruptError{File: sc.table.segmentPath(uint64(m.segment)), Offset: int64(m.off), Group: g.id, Index: lo, Through: hi - 1, missing: true,
		Reason: fmt.Sprintf("entries from %d on are here, but not those before them; a segment is missing", hi)}
}
