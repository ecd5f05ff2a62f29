package wal

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal/record"
)

// This file is what makes a write of one group atomic (rule R11): the bits that its records get when they are written,
// and what a recovery does with a write whose end is not there.
//
// Why: half a write can be wrong in a way that nothing shows. Of {commit index 3, entries 2 and 3 in place of others} the
// first sector alone says that the entries which were to be replaced are committed. Entries without the commit index
// beside them can elect two leaders across two membership changes (docs/decisions/0006-atomic-writes.md).
//
// A recovery holds back the parts of a write until it has seen the end. So parts of an unfinished write change no group,
// wherever they stand: a write may begin in a segment that was sealed in its middle. When all is read and the end did not
// come, a void record says that it never will. Without it the next records would stand behind half a write, and an end
// among them would complete it.
//
// Only the last write of a crash can lack its end: Append writes them one behind the other. Since every recovery voids
// what it finds unfinished before anything else is written, any record but a part of the same write, a link or a void
// behind an unfinished write is corruption.
//
// Rejected: a record for the end of a write (48 bytes for each), a checksum over the whole of an Append (groups would
// wait for one another's fate), and cutting the unfinished write off (it may begin in a segment that is sealed, and its
// link says where it ends).

// edges tells the first and the last record of a write from the others.
type edges struct {
	begun bool
	left  int // records that are still to come
}

// oneRecord is for what the log writes for a group by itself.
func oneRecord() *edges { return &edges{left: 1} }

// next returns the edge of the next record.
func (b *edges) next() (e record.Edge) {
	if !b.begun {
		b.begun, e = true, record.Begins
	}
	if b.left--; b.left == 0 {
		e |= record.Ends
	}
	return e
}

// part is one record of a write, as a recovery holds it back. It is no larger than its record on disk, so holding back
// a write takes no more memory than writing it did.
type part struct {
	index   uint64 // a hard state's vote
	term    uint64
	commit  uint64
	segment uint32
	off     uint32
	bytes   uint32
	seed    uint32
	kind    record.Kind
	version uint8
}

// newPart returns the part that a record of a group is.
func newPart(h record.Header, body []byte, where spot) part {
	p := part{
		index: h.Index, term: h.Term, kind: h.Kind, version: h.Version,
		segment: uint32(where.segment), off: uint32(where.off), bytes: uint32(where.end - where.off), seed: where.seed,
	}
	if h.Kind == record.KindHardState {
		p.index, p.commit = binary.LittleEndian.Uint64(body[0:]), binary.LittleEndian.Uint64(body[8:])
	}
	return p
}

func (p *part) where() spot {
	return spot{segment: uint64(p.segment), off: int64(p.off), end: int64(p.off) + int64(p.bytes), seed: p.seed}
}

func (p *part) hardState() raftpb.HardState {
	return raftpb.HardState{Term: p.term, Vote: p.index, Commit: p.commit}
}

// unfinished is the write that a recovery has seen the beginning of, and not yet the end.
type unfinished struct {
	open  bool
	group uint64
	parts []part
	// headless means that what was read last may lie in the middle of a write, as the segment before is not there.
	headless bool
	// lost are parts of writes that were given up because the segment that they go on in is not there, or not the one
	// that followed. Only an inspection goes on after that.
	lost []lostPart
}

// lostPart is a part with its group.
type lostPart struct {
	part
	group uint64
}

// enter notes a new segment, whose link says what came before it; before is how the last one that was read ended.
func (u *unfinished) enter(link, before record.End) {
	if link == before {
		return // a write may go on
	}
	u.giveUp()
	u.headless = link.Segment != 0
}

// giveUp closes a write whose end is out of reach.
func (u *unfinished) giveUp() {
	for _, p := range u.parts {
		u.lost = append(u.lost, lostPart{p, u.group})
	}
	u.close()
}

func (u *unfinished) close() { u.open, u.headless, u.parts = false, false, u.parts[:0] }

// reject is rule R11: it says why the record of h must not stand where it does, or "".
func (u *unfinished) reject(h record.Header) (reason string) {
	switch {
	case h.Kind == record.KindVoid && !u.open && !u.headless:
		return fmt.Sprintf("a void record of group %d stands where no write is unfinished", h.Group)
	case h.Kind == record.KindVoid && u.open && h.Group != u.group:
		return fmt.Sprintf("a void record of group %d stands behind an unfinished write of group %d", h.Group, u.group)
	case h.Kind == record.KindVoid:
		return ""
	case u.open && (!h.Kind.InWrite() || h.Edge&record.Begins != 0 || h.Group != u.group || h.Version < record.AtomicVersion):
		return fmt.Sprintf("a write of group %d has no end, and a %s record follows it that is no part of it", u.group, h.Kind)
	case !u.open && !u.headless && h.Version >= record.AtomicVersion && h.Kind.InWrite() && h.Edge&record.Begins == 0:
		return fmt.Sprintf("a %s record goes on with a write that did not begin", h.Kind)
	}
	return ""
}

// replayWrite applies a record of version 3, or holds it back until its write has ended.
func (l *Log) replayWrite(h record.Header, p part) {
	u := &l.unfinished
	if !u.open && h.Edge == record.Whole { // most are
		u.headless = false
		l.replayPart(l.Group(h.Group), p)
		return
	}
	u.open, u.group, u.headless = true, h.Group, false
	u.parts = append(u.parts, p)
	if h.Edge&record.Ends == 0 {
		return
	}
	for _, p := range u.parts {
		l.replayPart(l.Group(u.group), p)
	}
	u.close()
}

// replayVoid forgets the unfinished write. Its records stay where they are, among those that a reader of the group walks
// over, and may name the same indexes and terms as what is appended next. So no mark of the index may reach across them.
// No reader has the log yet.
func (l *Log) replayVoid(group uint64) {
	if g := l.groups[group]; g != nil { // it may have had nothing but that write
		g.index.sever()
	}
	l.unfinished.close()
}

// void writes down that the unfinished write, if there is one, never gets its end. A full disk is no reason not to: put
// left room for a mark behind every record, and no mark stands behind an unfinished write. Only where a file was
// cut short from outside the next segment is needed. The watermark of the void vouches for all before it, so it does what a mark does.
// No reader has the log yet.
func (l *Log) void() (voided bool, err error) {
	u := &l.unfinished
	if !u.open {
		return false, nil
	}
	l.opts.Logger.Warn("wal: voided a write whose end is not there", "file", l.tail.path, "offset", l.tail.end, "group", u.group, "records", len(u.parts))
	h := record.Header{Kind: record.KindVoid, Group: u.group}
	if l.tail.end > record.SegmentHeaderBytes && l.tail.end+record.HeaderBytes <= l.tail.size {
		l.putRecord(h, nil)
	} else if _, err := l.put(h, nil); err != nil {
		return false, err
	}
	l.replayVoid(u.group)
	if err := l.flush(); err != nil {
		return false, err
	}
	return true, l.syncTail()
}
