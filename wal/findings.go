package wal

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// This file notes what recovery's checks reject, each with the rule of package record that is broken and
// the entries that are gone (losses.go).

// FindingKind says how bad a finding is.
type FindingKind string

const (
	// TornEnd is what a crash leaves behind the last record, or what is being written at this moment. No
	// Sync had covered it.
	TornEnd FindingKind = "torn"
	// Warned means that something is not as it was written, and that the next Open repairs it without a
	// loss.
	Warned FindingKind = "warning"
	// Damaged means that something durable is not there any more.
	Damaged FindingKind = "corrupt"
	// Unreadable means that the log cannot be judged: the disk refused a read, or a file belongs to another
	// host or a newer version.
	Unreadable FindingKind = "unreadable"
)

// Finding is a place where a log breaks the rules of package record.
type Finding struct {
	Kind   FindingKind `json:"kind"`
	Rule   string      `json:"rule"` // R1 to R12 of wal/record/format.go; "header" for a segment's own; "fence" for FENCE; "disk" for a block that cannot be read; "" if it is none of them
	File   string      `json:"file"` // with the directory
	Offset int64       `json:"offset"`
	Bytes  int64       `json:"bytes"` // unusable bytes of the file after Offset; of a torn end what the next Open cuts
	// Durable is the offset up to which the file is known to have been durable, by a watermark or by the
	// next segment's link; 0 if neither says.
	Durable int64        `json:"durable"`
	Reason  string       `json:"reason"`
	Lost    []EntryRange `json:"lost,omitempty"` // entries that are lost, as far as can be told
	// LostStates are the groups whose last term and vote were in what cannot be read.
	LostStates []uint64 `json:"lost_states,omitempty"`
	Err        error    `json:"-"` // what recovery says
}

// EntryRange is a range of a group's entries, both ends included.
type EntryRange struct {
	Group uint64 `json:"group"`
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
}

const (
	ruleFence = "fence"
	ruleDisk  = "disk"
)

// inspectionPass is one reading of the directory.
type inspectionPass struct {
	in      *Inspection
	buf     []byte
	before  *trace // the segment before, if it could be read
	lastID  uint64 // the segment before, in any case
	tallies map[uint64]*Tally
	deleted map[uint64]uint64 // groups, and the segments of their last deletions
	beyond  []beyondDamage
}

func newInspectionPass(in *Inspection) *inspectionPass {
	return &inspectionPass{in: in, tallies: map[uint64]*Tally{}, deleted: map[uint64]uint64{}}
}

// segment applies one segment and checks it against the one before it.
func (s *inspectionPass) segment(file FileInfo, c contents) {
	in := s.in
	t, id := c.trace, c.trace.seg.id
	err := in.scan.apply(c)
	s.buf = c.data
	info := SegmentInfo{ID: id, Name: file.Name, Bytes: file.Bytes}
	before, lastID := s.before, s.lastID
	s.before, s.lastID = nil, id
	if err != nil {
		in.Segments = append(in.Segments, info)
		in.note(err, "", id)
		s.lookBeyondDamage(t, id)
		return
	}
	head, _ := record.ParseSegmentHeader(s.buf)
	if t.head {
		info.Version, info.Owner = head.Version, head.Owner
	}
	info.End, info.Durable = t.end, t.watermark
	s.count(t, &info)
	s.lookBeyondDamage(t, id)
	in.Segments = append(in.Segments, info)
	in.scan.traces = append(in.scan.traces, t)
	s.before = t
	s.compare(t, before, lastID)
}

// compare checks t against the segment before it.
func (s *inspectionPass) compare(t, before *trace, lastID uint64) {
	if before == nil && lastID != 0 {
		if t.holds() && lastID+1 != t.seg.id {
			s.in.note(t.corruptAt(0, fmt.Sprintf("segment %s is missing before it", record.SegmentName(t.seg.id-1))), "R8", t.seg.id)
		}
		return
	}
	err := t.follows(before)
	if err == nil {
		if before != nil && t.records > 0 && t.proof {
			s.in.Segments[len(s.in.Segments)-2].Durable = before.end
		}
		return
	}
	rule := "R8"
	var corrupt *CorruptError
	if errors.As(err, &corrupt) && before != nil && corrupt.File == before.seg.path && before.holds() {
		rule = before.why.Rule()
	}
	f := s.in.note(err, rule, t.seg.id)
	if f.File != t.seg.path && before != nil {
		f.Bytes = max(before.written, t.link.Offset) - before.end
		f.Durable = max(t.link.Offset, before.laterWatermark, before.watermark)
	}
}

// learnOwner expects the owner that FENCE names. If FENCE names none, it expects the owner that most
// segments name; on a tie, that of the later segments. So one segment of another host is the odd one,
// wherever it stands.
func (in *Inspection) learnOwner(segments []FileInfo) {
	if in.scan.past.fence.has(flagMade) {
		in.Owner, in.scan.owner = in.scan.past.fence.owner, in.scan.past.fence.owner
		return
	}
	named, most := map[uint64]int{}, 0
	for _, file := range segments {
		head, ok := in.readHead(file.Name)
		if !ok {
			continue
		}
		if named[head.Owner]++; named[head.Owner] >= most {
			in.Owner, most = head.Owner, named[head.Owner]
		}
	}
	in.scan.owner = in.Owner
}

// readHead reads the header of a segment. What is wrong with the file is noted later, when all of it is
// read.
func (in *Inspection) readHead(name string) (record.SegmentHeader, bool) {
	f, err := in.scan.dir.fs.Open(filepath.Join(in.Dir, name))
	if err != nil {
		return record.SegmentHeader{}, false
	}
	defer f.Close()
	var b [record.SegmentHeaderBytes]byte
	n, _ := f.ReadAt(b[:], 0) // what is missing makes the header invalid
	return record.ParseSegmentHeader(b[:n])
}

// note turns an error of recovery into a finding.
func (in *Inspection) note(err error, rule string, segment uint64) *Finding {
	f := Finding{Kind: Unreadable, Rule: rule, File: in.scan.table.segmentPath(segment), Reason: err.Error(), Err: err}
	var corrupt *CorruptError
	if errors.As(err, &corrupt) {
		f.Kind, f.File, f.Offset, f.Reason = Damaged, corrupt.File, corrupt.Offset, corrupt.Reason
		if corrupt.Through >= corrupt.Index && corrupt.Through > 0 {
			f.Lost = []EntryRange{{corrupt.Group, corrupt.Index, corrupt.Through}}
		}
		if rule == "" {
			f.Rule = "header"
			if f.Offset >= record.SegmentHeaderBytes {
				f.Rule = "R5"
			}
			if corrupt.rule != "" {
				f.Rule = corrupt.rule
			}
		}
	}
	in.Findings = append(in.Findings, f)
	return &in.Findings[len(in.Findings)-1]
}

// lookAtFence reads FENCE.
func (in *Inspection) lookAtFence() {
	err := in.scan.recallFence()
	f := in.scan.past.fence
	if err != nil {
		n := in.note(err, ruleFence, 0)
		n.File, n.Bytes = in.scan.dir.fencePath(), fenceBytes
		return
	}
	if err := in.warnOfFence(); err != nil {
		n := in.note(err, ruleFence, 0)
		n.File, n.Bytes = in.scan.dir.fencePath(), fenceBytes
	}
	boot, err := in.scan.past.boot, in.scan.past.bootErr
	dirty := f.flags&flagDirty != 0
	in.Fence = FenceInfo{
		Found: f.version > 0, Generation: f.generation, Dirty: dirty,
		Amnesia: f.flags&flagAmnesia != 0 || dirty && err == nil && (boot == "" || boot != f.boot),
		Closed:  f.has(flagClosed),
	}
}

// warnOfFence notes that one copy of FENCE is bad. The other one counts, and the next Open writes both.
func (in *Inspection) warnOfFence() error {
	f, err := in.scan.dir.fs.Open(in.scan.dir.fencePath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, fenceCopies*fenceBlock)
	if size, err := f.Size(); err != nil || size != int64(len(b)) {
		return err // there are no two copies, which is an old form
	}
	lost, _, err := readAround(f, b)
	if err != nil {
		return err
	}
	for i := range int64(fenceCopies) {
		_, err := decodeFence(b[i*fenceBlock:][:fenceBytes], in.scan.dir.fencePath())
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			continue
		}
		reason := corrupt.Reason
		if _, ok := lost.within(i*fenceBlock, i*fenceBlock+fenceBytes); ok {
			reason = fmt.Sprintf("the disk cannot read it (%v)", lost.err)
		}
		in.Findings = append(in.Findings, Finding{Kind: Warned, Rule: ruleFence, File: in.scan.dir.fencePath(), Offset: i * fenceBlock, Bytes: fenceBytes,
			Reason: fmt.Sprintf("copy %d of two: %s; the other one counts", i+1, reason), Err: err})
	}
	return nil
}

// count tallies the valid records of t, whose bytes are in buf.
func (s *inspectionPass) count(t *trace, info *SegmentInfo) {
	for off := int64(record.SegmentHeaderBytes); off < t.end; {
		h, why := record.ParseHeader(s.buf[off:], t.seg.head.Seal(), off)
		if why != record.FlawNone {
			return // recovery has just read it
		}
		info.Records.add(h.Kind, h.Bytes())
		if h.Kind == record.KindDeletion {
			s.deleted[h.Group] = t.seg.id
		}
		if h.Kind != record.KindLink && h.Kind != record.KindWatermark && h.Kind != record.KindFront {
			if s.tallies[h.Group] == nil {
				s.tallies[h.Group] = &Tally{}
			}
			s.tallies[h.Group].add(h.Kind, h.Bytes())
		}
		off += h.Bytes()
	}
}

// finish makes the checks that need all segments.
func (s *inspectionPass) finish() {
	in := s.in
	tail := in.scan.traces.last()
	for _, t := range in.scan.traces {
		if err := t.checkEnd(t == tail); err != nil {
			f := in.note(err, t.why.Rule(), t.seg.id)
			f.Bytes, f.Durable = t.written-t.end, t.laterWatermark
		} else if !in.InUse() && t.cutsOff(tail) {
			if err := in.scan.checkKill(t); err != nil {
				f := in.note(err, t.why.Rule(), t.seg.id)
				f.Bytes, f.Durable = t.written-t.end, t.watermark
			}
		}
	}
	s.checkFront()
	s.checkPast()
	s.checkGaps()
	s.noteUnfinished(tail)
	s.noteTorn(tail)
	s.noteLost()
	s.explain()
	s.loseParts()
	s.extendLosses()
	for i := range in.Findings {
		in.Findings[i].Lost = joinRanges(in.Findings[i].Lost)
	}
	in.describe(s.tallies)
}

// checkPast checks rule R12. If something else is wrong, that explains the end, so the end is not judged.
func (s *inspectionPass) checkPast() {
	in := s.in
	if err := in.scan.checkFence(); err != nil {
		in.note(err, "", 0)
	}
	if in.harms() == 0 {
		if err := in.scan.checkEnd(); err != nil {
			in.note(err, "", 0)
		}
	}
}

// harms is the number of findings that may be the cause of others.
func (in *Inspection) harms() (n int) {
	for i := range in.Findings {
		if in.Findings[i].Kind != Warned {
			n++
		}
	}
	return n
}

// checkGaps checks rule R9. If something else is wrong, a hole in a group follows from that, and adds to
// its losses.
func (s *inspectionPass) checkGaps() {
	in := s.in
	causes := in.harms()
	for _, g := range in.scan.table.allGroups() {
		for first := g.start.Index + 1; ; {
			err := in.scan.checkGroup(g, first)
			var gap *CorruptError
			if !errors.As(err, &gap) {
				break
			}
			first = gap.Through + 1
			if causes == 0 {
				in.note(err, "R9", 0)
				continue
			}
			f := cause(in.Findings, gap.File)
			f.Lost = append(f.Lost, EntryRange{gap.Group, gap.Index, gap.Through})
		}
	}
}

// cause returns the last finding in or before a file, or the first of all. There is one that is no warning.
func cause(findings []Finding, file string) *Finding {
	var best *Finding
	for i := range findings {
		f := &findings[i]
		if f.Kind != Warned && (best == nil || f.File <= file && f.File >= best.File) {
			best = f
		}
	}
	return best
}

// checkFront checks rule R7, unless the first segment could not be read at all.
func (s *inspectionPass) checkFront() {
	in := s.in
	if len(in.scan.traces) == 0 || in.scan.traces[0].seg.id != in.Segments[0].ID {
		return
	}
	if err := in.scan.traces.checkFront(in.scan.firstNeeded); err != nil {
		in.note(err, "R7", in.Segments[0].ID)
	}
}

// judged reports whether the end of t already has a finding.
func (t *trace) judged(findings []Finding) bool {
	return slices.ContainsFunc(findings, func(f Finding) bool { return f.File == t.seg.path && f.Offset == t.end })
}

// noteUnfinished notes a write that lacks its end. At the end of the log a crash left it so, and the next
// Open voids it. Behind damage it is a part of what the damage took.
func (s *inspectionPass) noteUnfinished(tail *trace) {
	u := &s.in.scan.unfinished
	if !u.open {
		return
	}
	if tail == nil || tail.judged(s.in.Findings) || cutBy(s.in.Findings, s.in.scan.table.segmentPath(tail.seg.id+1)) != nil {
		u.giveUp()
		return
	}
	begin := &u.parts[0]
	f := Finding{Kind: TornEnd, Rule: "R11", File: s.in.scan.table.segmentPath(uint64(begin.segment)), Offset: int64(begin.off), Durable: tail.watermark,
		Reason: fmt.Sprintf("a write of group %d begins here and lacks its end", u.group)}
	for i := range u.parts {
		f.Bytes += int64(u.parts[i].bytes)
	}
	s.in.Findings = append(s.in.Findings, f)
}

// noteTorn notes what the next Open would cut: the end of the tail, or a first batch behind it.
func (s *inspectionPass) noteTorn(tail *trace) {
	for _, t := range s.in.scan.traces {
		if t.cutsOff(tail) && !t.judged(s.in.Findings) {
			s.in.Findings = append(s.in.Findings, Finding{Kind: TornEnd, Rule: t.why.Rule(), File: t.seg.path, Offset: t.end,
				Bytes: t.written - t.end, Durable: max(t.watermark, t.laterWatermark), Reason: string(t.why)})
		}
	}
}

// noteLost notes blocks that the disk cannot read and that no record needs.
func (s *inspectionPass) noteLost() {
	for _, t := range s.in.scan.traces {
		if t.why == record.FlawUnreadable || t.judged(s.in.Findings) {
			continue
		}
		for _, off := range t.lost.offs {
			s.in.Findings = append(s.in.Findings, Finding{Kind: Warned, Rule: ruleDisk, File: t.seg.path, Offset: off, Bytes: vfs.BlockBytes,
				Reason: fmt.Sprintf("the disk cannot read a block that no record needs (%v)", t.lost.err), Err: t.lost.err})
		}
	}
}

// noteRereads notes blocks that could only be read at a second attempt.
func (in *Inspection) noteRereads(blocks []rereadBlock) {
	for _, b := range blocks {
		if !slices.ContainsFunc(in.Findings, func(f Finding) bool { return f.File == b.file && f.Rule == ruleDisk }) {
			in.Findings = append(in.Findings, Finding{Kind: Warned, Rule: ruleDisk, File: b.file,
				Reason: fmt.Sprintf("the disk could read a block only at the second attempt (%v)", b.err), Err: b.err})
		}
	}
}
