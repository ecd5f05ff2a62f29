package wal

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal/record"
)

// Salvaging opens a corrupt log (Options.Salvage). It accepts the records before the damage, because only
// those are known to be complete. It says what each group lacks, as far as the headers after the damage
// tell: a hole, which the caller fills from peers. Terms and votes may be missing too, so the fence says
// amnesia until CaughtUp.
//
// Nothing is destroyed. The damaged segment gets another name (*.damaged), and the accepted part of it is
// copied. The segments behind it get other names too (*.behind if they are valid by themselves). The order
// is as follows, each step durable before the next:
//
// 1. The fence says amnesia: the files set aside may be the only proof that there was damage, and a crash
// that lost this proof would leave what looks like a torn tail. 2. The copy is written (SALVAGE.new). 3.
// LOSS says what is missing (loss.go). 4. The segments get their other names, the last first, and then the
// copy gets the name of the damaged one.
//
// A crash between the last two renames leaves a log that looks whole and lacks the copy. So a SALVAGE.new
// without its segment is damage (rule R8), and the next salvage begins by giving it the name of its
// segment.

// damage is where a log stops being acceptable, and what is known of the rest.
type damage struct {
	segment uint64 // 0: nowhere, all records are good, but something is missing between them
	off     int64
	draft   bool // a salvage was cut off: SALVAGE.new is to become its segment
	holes   map[uint64]*Hole
	rest    []aside // segments to set aside
	fence   bool    // FENCE is lost, and made again from what the segments name
	cutData []byte  // the accepted part of the damaged segment
}

// aside is a segment that gets another name.
type aside struct {
	id    uint64
	whole bool // its records are valid by themselves
}

// sets reports whether a segment gets another name.
func (d *damage) sets(id uint64) bool {
	return slices.ContainsFunc(d.rest, func(a aside) bool { return a.id == id })
}

// excludes reports whether nothing of a segment is accepted.
func (d *damage) excludes(id uint64) bool {
	if d == nil || d.segment == 0 || id < d.segment {
		return false
	}
	return id > d.segment || d.off <= record.SegmentHeaderBytes
}

// accepts returns how many of the first bytes of a segment may be accepted.
func (d *damage) accepts(id uint64, size int64) int64 {
	if !d.cuts(id) {
		return size
	}
	return min(d.off, size)
}

// cuts reports whether a segment is accepted in part.
func (d *damage) cuts(id uint64) bool { return d != nil && id == d.segment }

// cut returns the part of a segment's contents that is accepted.
func (d *damage) cut(id uint64, data []byte) []byte {
	if !d.cuts(id) {
		return data
	}
	d.cutData = slices.Clone(data[:min(d.off, int64(len(data)))])
	return d.cutData
}

// openSalvaged opens a log whose first attempt failed with err.
func openSalvaged(opts Options, err error) (*Log, error) {
	fence := false
	for range maxSalvages { // each finds the next flaw before the last
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			return nil, err
		}
		fence = fence || corrupt.rule == ruleFence && !corrupt.missing
		d := &damage{holes: map[uint64]*Hole{}, fence: fence, draft: corrupt.draft}
		if id, ok := record.ParseSegmentName(filepath.Base(corrupt.File)); ok && !corrupt.missing && !corrupt.draft {
			d.segment, d.off = id, corrupt.Offset
		}
		opts.Logger.Error("wal: salvaging a corrupt log", "err", corrupt)
		var l *Log
		if l, err = recoverLog(opts, d); err == nil {
			return l, nil
		}
	}
	return nil, err
}

const maxSalvages = 64

// Holes returns what a salvaged log was known to lack when it was opened, in order of groups: after the
// salvage, and after each restart until CaughtUp. It returns nothing if the log was never salvaged.
func (l *Log) Holes() []Hole {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.holes)
}

// sortedHoles returns what this salvage found to be missing, in order of groups.
func (d *damage) sortedHoles() []*Hole {
	return slices.SortedFunc(maps.Values(d.holes), func(a, b *Hole) int { return cmp.Compare(a.Group, b.Group) })
}

// see notes that a group had an entry at index, or was in term. 0 stands for neither.
func (d *damage) see(group, index, term uint64) {
	h := d.holes[group]
	if h == nil {
		h = &Hole{Group: group}
		d.holes[group] = h
	}
	h.Through, h.Term = max(h.Through, index), max(h.Term, term)
}

// seePart notes that a group had what a part of a write says.
func (d *damage) seePart(group uint64, p part) {
	switch p.kind {
	case record.KindEntry, record.KindBase, record.KindReset:
		d.see(group, p.index, p.term)
	case record.KindHardState:
		d.seeState(group, p.term)
	}
}

// seeState notes that a group had a hard state.
func (d *damage) seeState(group, term uint64) {
	d.see(group, 0, term)
	d.holes[group].State = true
}

// findHoles notes what the rejected part names, and takes back accepted entries that are not contiguous.
func (sc *scan) findHoles(names []string) error {
	d := sc.damage
	for _, name := range names {
		id, ok := record.ParseSegmentName(name)
		if !ok || d.segment == 0 || id < d.segment {
			continue
		}
		from := int64(record.SegmentHeaderBytes)
		if id == d.segment {
			from = max(from, d.off)
		}
		whole, err := sc.lookAt(id, from)
		if err != nil {
			return err
		}
		d.rest = append(d.rest, aside{id, whole && from == record.SegmentHeaderBytes})
	}
	if d.segment != 0 { // the parts of the write that the damage cut through
		for _, p := range sc.unfinished.parts {
			d.seePart(sc.unfinished.group, p)
		}
	}
	for _, g := range sc.table.allGroups() {
		if lo, _, missing := g.index.gap(g.start.Index + 1); missing {
			d.see(g.id, g.last, 0)
			g.truncate(lo)
		}
	}
	for _, h := range d.holes {
		h.First = sc.table.group(h.Group).last + 1
	}
	maps.DeleteFunc(d.holes, func(_ uint64, h *Hole) bool {
		return !h.open(sc.table.group(h.Group))
	})
	return nil
}

// lookAt notes what the headers of a segment name after an offset, without looking at their bodies. It
// reports whether all records of the segment are valid by themselves.
func (sc *scan) lookAt(id uint64, from int64) (whole bool, err error) {
	f, err := sc.dir.fs.Open(sc.table.segmentPath(id))
	if err != nil {
		return false, err
	}
	size, err := f.Size()
	size = min(max(size, 0), maxFileBytes)
	data := make([]byte, size)
	var lost lostBlocks
	if err == nil {
		lost, _, err = readAround(f, data)
	}
	if len(lost.offs) > 0 {
		err = nil // what could be read has to do
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return false, err
	}
	seal := record.GuessSeal(data, id)
	if head, ok := record.ParseSegmentHeader(data); ok {
		seal = head.Seal()
		sc.newest = max(sc.newest, uint64(head.Generation))
	}
	for off := from; off+record.HeaderBytes <= size; off += record.Alignment {
		h, why := record.ParseHeader(data[off:], seal, off)
		if why != record.FlawNone {
			continue
		}
		switch h.Kind {
		case record.KindWatermark:
			sc.newest = max(sc.newest, h.Index)
		case record.KindEntry, record.KindMoved, record.KindBase, record.KindReset:
			sc.damage.see(h.Group, h.Index, h.Term)
		case record.KindHardState:
			sc.damage.seeState(h.Group, h.Term)
		case record.KindDeletion:
			delete(sc.damage.holes, h.Group) // nothing from before it is missed
		}
		off += h.Bytes() - record.Alignment
	}
	return len(lost.offs) == 0 && record.ValidSegment(id, data), nil
}

// setAside gives the damaged segments other names, the last first, and puts the accepted part of the first
// of them in its place. tail is the last segment that has an accepted part, if any.
func (r *recovery) setAside(tail *trace, names []string) error {
	if err := r.log.dir.removeDraft(names); err != nil { // one of another salvage must not be taken for this one's
		return err
	}
	if r.scan.damage == nil {
		return nil
	}
	d, disk := r.scan.damage, r.log.opts.FS
	if tail != nil && d.sets(tail.seg.id) {
		if err := r.writeDraft(tail.seg.size); err != nil { // first, as there may be no space
			return err
		}
	}
	if len(r.loss.holes) > 0 {
		if err := r.writeLoss(); err != nil {
			return err
		}
	}
	for _, a := range slices.Backward(d.rest) {
		suffix := damagedSuffix
		if a.whole {
			suffix = behindSuffix
		}
		to := fmt.Sprintf("%s.%d%s", r.log.table.segmentPath(a.id), r.log.fence.now.generation, suffix)
		if err := disk.Rename(r.log.table.segmentPath(a.id), to); err != nil {
			return err
		}
		if err := vfs.SyncDir(disk, r.log.opts.Dir); err != nil {
			return err
		}
		if tail == nil || tail.seg.id != a.id {
			continue
		}
		// Seen in TestRepairIsRepeatable: not before the other name is durable, or a crash that keeps only
		// this rename destroys the damaged file.
		if err := r.replaceTail(tail.seg); err != nil {
			return err
		}
		if err := vfs.SyncDir(disk, r.log.opts.Dir); err != nil {
			return err
		}
	}
	return nil
}

// Suffixes that setAside adds to names. The id in front of them stays taken (highestID).
const (
	damagedSuffix = ".damaged"
	behindSuffix  = ".behind"
	draftName     = "SALVAGE.new"
)

func (d directory) draftPath() string { return filepath.Join(d.path, draftName) }

// draftOf returns the segment whose copy the draft is, if the names in the directory include a draft. It
// returns 0 for none, and for one that was not written completely, since then no rename has happened yet.
func (d directory) draftOf(names []string) (id uint64, err error) {
	if !slices.Contains(names, draftName) {
		return 0, nil
	}
	f, err := d.fs.Open(d.draftPath())
	if errors.Is(err, fs.ErrNotExist) { // since the names were read
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var b [record.SegmentHeaderBytes]byte
	n, err := f.ReadAt(b[:], 0)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	head, _ := record.ParseSegmentHeader(b[:n])
	return head.ID, errors.Join(err, f.Close())
}

// rejectDraft refuses a directory in which a salvage was cut off between its last two renames.
func (sc *scan) rejectDraft(names []string) error {
	id, err := sc.dir.draftOf(names)
	if err != nil || id == 0 || slices.Contains(names, record.SegmentName(id)) {
		return err
	}
	return &CorruptError{File: sc.table.segmentPath(id), draft: true, rule: "R8",
		Reason: fmt.Sprintf("a repair was interrupted: the damaged segment was set aside, but the copy of its valid part, %s, is not in its place yet; repair again to continue", draftName)}
}

// finishDraft gives the draft of an interrupted salvage the name of its segment.
func (r *recovery) finishDraft() error {
	names, err := r.log.opts.FS.ReadDir(r.log.opts.Dir)
	if err != nil {
		return err
	}
	id, err := r.log.dir.draftOf(names)
	if err != nil || id == 0 || slices.Contains(names, record.SegmentName(id)) {
		return err
	}
	if err := vfs.SyncDir(r.log.opts.FS, r.log.opts.Dir); err != nil { // as in setAside: the other name of the damaged one comes first
		return err
	}
	if err := r.log.opts.FS.Rename(r.log.dir.draftPath(), r.log.table.segmentPath(id)); err != nil {
		return err
	}
	return vfs.SyncDir(r.log.opts.FS, r.log.opts.Dir)
}

// removeDraft removes a draft that no salvage needs any more, durably.
func (d directory) removeDraft(names []string) error {
	if !slices.Contains(names, draftName) {
		return nil
	}
	if err := d.fs.Remove(d.draftPath()); err != nil && !errors.Is(err, fs.ErrNotExist) { // finishDraft took it
		return err
	}
	return vfs.SyncDir(d.fs, d.path)
}

// writeDraft writes the accepted part of the damaged segment to the draft, durably with its name.
func (r *recovery) writeDraft(size int64) error {
	f, err := r.log.opts.FS.Create(r.log.dir.draftPath())
	if err != nil {
		return err
	}
	err = f.Preallocate(0, size)
	if err == nil {
		_, err = f.WriteAt(r.scan.damage.cutData, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return vfs.SyncDir(r.log.opts.FS, r.log.opts.Dir)
}

// replaceTail makes the draft the file of the segment.
func (r *recovery) replaceTail(s *segment) error {
	if err := s.file.Close(); err != nil {
		return err
	}
	if err := r.log.opts.FS.Rename(r.log.dir.draftPath(), s.path); err != nil {
		return err
	}
	f, err := r.log.opts.FS.Open(s.path)
	if err != nil {
		return err
	}
	s.file = f
	return nil
}

// mendGroups writes records of what findHoles took back, and a front if segments before the first one are
// missing.
func (r *recovery) mendGroups(found traces) error {
	if r.scan.damage == nil {
		return nil
	}
	var records []record.Header
	for _, h := range r.scan.damage.sortedHoles() {
		records = append(records, record.Header{Kind: record.KindTruncation, Edge: record.Whole, Group: h.Group, Index: h.First})
	}
	if first := found[0].seg.id; first > max(1, r.log.cleaner.firstNeeded) {
		records = append(records, record.Header{Kind: record.KindFront, Index: first})
		r.log.cleaner.firstNeeded = first
	}
	for _, h := range records {
		if _, err := r.log.put(h, nil); err != nil {
			return err
		}
	}
	if err := r.log.flush(); err != nil {
		return err
	}
	return r.log.syncTail()
}
