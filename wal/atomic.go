package wal

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal/record"
)

// This file makes a write of one group atomic (rule R11): it sets the bits of its records that mark the
// edges of a write, and it decides what a recovery does with a write that lacks its end.
//
// Why: half a write can be wrong in a way that nothing shows. Take a write of commit index 3 and entries 2
// and 3 in place of others. Its first sector alone says that the entries which it was to replace are
// committed. Entries without the commit index beside them can elect two leaders across two membership
// changes (decision 0006).
//
// A recovery holds back the parts of a write until it has seen the end. So parts of an unfinished write
// change no group, wherever they stand; a write may begin in a segment that was sealed in the middle of it.
// When everything is read and the end is missing, a void record says that it will never come. Without the
// void the next records would follow half a write, and an end among them would complete it.
//
// Only the last write before a crash can lack its end, because Append writes one after another. Every
// recovery voids an unfinished write before it writes anything else. So after an unfinished write, any
// record but a part of the same write, a link or a void is corruption.
//
// Rejected: a record for the end of a write (48 bytes for each), a checksum over all of an Append (groups
// would wait for one another's fate), and cutting the unfinished write off (it may begin in a sealed
// segment, whose link says where it ends).

// edges finds the edge of each record while a write is encoded.
type edges struct {
	begun bool
	left  int // records that are still to come
}

// oneRecord returns the edges of a write of one record, which the log writes for a group by itself.
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

// part is one record of a write while a recovery holds it back. It is no larger than the record on disk, so
// holding back a write takes no more memory than writing it did.
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
	typ     uint8 // of an entry
}

// newPart returns the part for a record at where.
func newPart(h record.Header, body []byte, where spot) part {
	p := part{
		index: h.Index, term: h.Term, kind: h.Kind, version: h.Version, typ: h.Type,
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

// unfinished is the write whose beginning a recovery has read, and whose end it has not.
type unfinished struct {
	open  bool
	group uint64
	parts []part
	// headless means that the last record read may be in the middle of a write, because the segment before
	// is missing.
	headless bool
	// lost are parts of writes that were given up because the segment in which they continue is missing, or
	// is not the one that followed. Only an inspection continues after that.
	lost []lostPart
}

// lostPart is a part with its group.
type lostPart struct {
	part
	group uint64
}

// enter notes a new segment. link is what its link says of the segment before; before is how the last
// segment read ended.
func (u *unfinished) enter(link, before record.End) {
	if link == before {
		return // a write may continue
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

// reject checks rule R11: it returns why the record of h must not be here, or "".
func (u *unfinished) reject(h record.Header) (reason string) {
	switch {
	case h.Kind == record.KindVoid && !u.open && !u.headless:
		return fmt.Sprintf("a void record of group %d is where no write is unfinished", h.Group)
	case h.Kind == record.KindVoid && u.open && h.Group != u.group:
		return fmt.Sprintf("a void record of group %d follows an unfinished write of group %d", h.Group, u.group)
	case h.Kind == record.KindVoid:
		return ""
	case u.open && (!h.Kind.InWrite() || h.Edge&record.Begins != 0 || h.Group != u.group || h.Version < record.AtomicVersion):
		return fmt.Sprintf("a write of group %d has no end, and a %s record follows it that is no part of it", u.group, h.Kind)
	case !u.open && !u.headless && h.Version >= record.AtomicVersion && h.Kind.InWrite() && h.Edge&record.Begins == 0:
		return fmt.Sprintf("a %s record continues a write that did not begin", h.Kind)
	}
	return ""
}

// replayWrite applies a record of version 3, or holds it back until its write has ended.
func (sc *scan) replayWrite(h record.Header, p part) {
	u := &sc.unfinished
	if !u.open && h.Edge == record.Whole { // most are
		u.headless = false
		sc.replayPart(sc.table.group(h.Group), p)
		return
	}
	u.open, u.group, u.headless = true, h.Group, false
	u.parts = append(u.parts, p)
	if h.Edge&record.Ends == 0 {
		return
	}
	for _, p := range u.parts {
		sc.replayPart(sc.table.group(u.group), p)
	}
	u.close()
}

// replayVoid forgets the unfinished write. Its records stay in the log, among those that a reader of the
// group walks over, and may have the same indexes and terms as the next appended entries. So no run of the
// index may reach across them. No reader has the log yet.
func (sc *scan) replayVoid(group uint64) {
	if g := sc.table.groups[group]; g != nil { // it may have had nothing but that write
		g.index.sever()
	}
	sc.unfinished.close()
}

// void writes down that the unfinished write, if there is one, will never have its end. It works on a full
// disk: put left space for a watermark record after every record, and no watermark record follows an
// unfinished write. It needs the next segment only if a file was cut short from outside. The void's watermark
// says that everything before it is durable, so no watermark record is needed as well. No reader has the log
// yet.
func (r *recovery) void() (voided bool, err error) {
	u := &r.scan.unfinished
	if !u.open {
		return false, nil
	}
	r.log.opts.Logger.Warn("wal: voided a write that lacks its end", "file", r.log.tail.seg.path, "offset", r.log.tail.seg.end, "group", u.group, "records", len(u.parts))
	h := record.Header{Kind: record.KindVoid, Group: u.group}
	if r.log.tail.seg.end > record.SegmentHeaderBytes && r.log.tail.seg.end+record.HeaderBytes <= r.log.tail.seg.size {
		r.log.putRecord(h, nil)
	} else if _, err := r.log.put(h, nil); err != nil {
		return false, err
	}
	r.scan.replayVoid(u.group)
	if err := r.log.flush(); err != nil {
		return false, err
	}
	return true, r.log.syncTail()
}
