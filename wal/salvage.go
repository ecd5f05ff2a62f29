package wal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
)

// Salvaging opens a corrupt log (Options.Salvage): it accepts the records before the damage, since only of those it is
// known that they are all there is, and says what each group lacks as far as the headers after the damage tell: a hole,
// for the caller to fill from peers. Terms and votes may be missing too, so the fence says amnesia until CaughtUp.
//
// Nothing is destroyed. The damaged segment and those after it get another name (*.damaged), and the accepted part
// of the damaged one is copied. The amnesia is durable before that: the files set aside may be what proves that there
// was damage, and without them a crash would leave something that looks like a torn tail.

// Hole is what a salvaged group is known to lack.
type Hole struct {
	Group uint64
	// First and Through are the entries that were seen after the damage, or before it and not contiguous with the rest.
	// None if Through is below First.
	First, Through uint64
	// Term is the highest term that was seen after the damage, of entries or of the group: the member was in it once.
	Term uint64
}

// damage is where a log stops being acceptable, and what is known of the rest.
type damage struct {
	segment uint64 // 0: nowhere, all records are good, but something is missing between them
	off     int64
	holes   map[uint64]*Hole
	rest    []uint64 // segments to set aside
	cutData []byte   // the accepted part of the damaged segment
}

// excludes reports whether nothing of a segment is accepted.
func (d *damage) excludes(id uint64) bool {
	if d == nil || d.segment == 0 || id < d.segment {
		return false
	}
	return id > d.segment || d.off <= segmentHead
}

// cut returns the part of a segment's contents that is accepted.
func (d *damage) cut(id uint64, data []byte) []byte {
	if d == nil || id != d.segment {
		return data
	}
	d.cutData = slices.Clone(data[:min(d.off, int64(len(data)))])
	return d.cutData
}

// openSalvaged opens a log of which the first attempt said err.
func openSalvaged(opts Options, err error) (*Log, error) {
	for range maxSalvages { // each finds the next flaw before the last
		var corrupt *CorruptError
		if !errors.As(err, &corrupt) {
			return nil, err
		}
		d := &damage{holes: map[uint64]*Hole{}}
		if !corrupt.missing {
			id, ok := parseSegmentName(filepath.Base(corrupt.File))
			if !ok {
				return nil, err // the fence: without an incarnation nobody can tell what this log said
			}
			d.segment, d.off = id, corrupt.Offset
		}
		opts.Logger.Error("wal: salvaging a corrupt log", "err", corrupt)
		var l *Log
		if l, err = tryOpen(opts, d); err == nil {
			return l, nil
		}
	}
	return nil, err
}

const maxSalvages = 64

// Holes returns what a salvaged log is known to lack, in order of groups; nothing if the log was whole.
func (l *Log) Holes() []Hole {
	if l.damage == nil {
		return nil
	}
	holes := make([]Hole, 0, len(l.damage.holes))
	for _, h := range l.damage.holes {
		holes = append(holes, *h)
	}
	slices.SortFunc(holes, func(a, b Hole) int { return cmp.Compare(a.Group, b.Group) })
	return holes
}

// see notes that a group had an entry, or was in a term. 0 is neither.
func (d *damage) see(group, index, term uint64) {
	h := d.holes[group]
	if h == nil {
		h = &Hole{Group: group}
		d.holes[group] = h
	}
	h.Through, h.Term = max(h.Through, index), max(h.Term, term)
}

// seePart notes that a group was to have what a part of a write says.
func (d *damage) seePart(group uint64, p part) {
	switch p.kind {
	case kindEntry, kindBase, kindReset:
		d.see(group, p.index, p.term)
	case kindHardState:
		d.see(group, 0, p.term)
	}
}

// findHoles looks at what is not accepted, and takes back what is accepted and not contiguous.
func (l *Log) findHoles(names []string) error {
	d := l.damage
	for _, name := range names {
		id, ok := parseSegmentName(name)
		if !ok || d.segment == 0 || id < d.segment {
			continue
		}
		from := int64(segmentHead)
		if id == d.segment {
			from = max(from, d.off)
		}
		d.rest = append(d.rest, id)
		if err := l.lookAt(id, from); err != nil {
			return err
		}
	}
	if d.segment != 0 { // the parts of the write that the damage cut through
		for _, p := range l.unfinished.parts {
			d.seePart(l.unfinished.group, p)
		}
	}
	for _, g := range l.allGroups() {
		if lo, _, missing := g.index.gap(g.start.index + 1); missing {
			d.see(g.id, g.last, 0)
			g.truncate(lo)
		}
	}
	for _, h := range d.holes {
		h.First = l.Group(h.Group).last + 1
	}
	maps.DeleteFunc(d.holes, func(_ uint64, h *Hole) bool {
		return h.Through < h.First && h.Term <= l.Group(h.Group).hs.Term
	})
	return nil
}

// lookAt notes what the headers of a segment from an offset on speak of. Their bodies are not looked at.
func (l *Log) lookAt(id uint64, from int64) error {
	f, err := l.opts.FS.Open(l.segmentPath(id))
	if err != nil {
		return err
	}
	size, err := f.Size()
	size = min(max(size, 0), maxFileBytes)
	data := make([]byte, size)
	if err == nil && size > 0 {
		_, err = f.ReadAt(data, 0)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for off := from; off+recordHead <= size; off += recordAlign {
		h, why := parseHeader(data[off:], id, off)
		if why != flawNone {
			continue
		}
		switch h.kind {
		case kindEntry, kindMoved, kindBase, kindReset:
			l.damage.see(h.group, h.index, h.term)
		case kindHardState:
			l.damage.see(h.group, 0, h.term)
		case kindDelete:
			delete(l.damage.holes, h.group) // nothing from before it is missed
		}
		off += h.bytes() - recordAlign
	}
	return nil
}

// setAside gives the damaged segments another name, the last first, and puts the accepted part of the first of them in
// its place; tail is the last segment that has one, if any.
func (l *Log) setAside(tail *trace) error {
	if l.damage == nil {
		return nil
	}
	d, disk := l.damage, l.opts.FS
	if tail != nil && slices.Contains(d.rest, tail.seg.id) {
		if err := l.writeDraft(tail.seg.size); err != nil { // first, as there may be no room
			return err
		}
	}
	for _, id := range slices.Backward(d.rest) {
		replace := tail != nil && tail.seg.id == id
		aside := fmt.Sprintf("%s.%d.damaged", l.segmentPath(id), l.fence.incarnation)
		if err := disk.Rename(l.segmentPath(id), aside); err != nil {
			return err
		}
		if err := disk.SyncDir(l.opts.Dir); err != nil {
			return err
		}
		if !replace {
			continue
		}
		// Seen in TestRepairIsRepeatable: not before the other name is durable, or a crash that keeps only this rename
		// destroys the damaged file.
		if err := l.replaceTail(tail.seg); err != nil {
			return err
		}
		if err := disk.SyncDir(l.opts.Dir); err != nil {
			return err
		}
	}
	return nil
}

func (l *Log) draftPath() string { return filepath.Join(l.opts.Dir, "SALVAGE.new") }

// writeDraft writes the accepted part of the damaged segment to a file of its own.
func (l *Log) writeDraft(size int64) error {
	disk := l.opts.FS
	if err := disk.Remove(l.draftPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := disk.Create(l.draftPath())
	if err != nil {
		return err
	}
	err = f.Preallocate(0, size)
	if err == nil {
		_, err = f.WriteAt(l.damage.cutData, 0)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// replaceTail makes the draft the file of the segment.
func (l *Log) replaceTail(s *segment) error {
	if err := s.file.Close(); err != nil {
		return err
	}
	if err := l.opts.FS.Rename(l.draftPath(), s.path); err != nil {
		return err
	}
	f, err := l.opts.FS.Open(s.path)
	if err != nil {
		return err
	}
	s.file = f
	return nil
}

// mendGroups writes down what findHoles took back, and that nothing before the first segment is missed any more.
func (l *Log) mendGroups(found traces) error {
	if l.damage == nil {
		return nil
	}
	var records []header
	for _, h := range l.Holes() {
		records = append(records, header{kind: kindTruncate, edge: whole, group: h.Group, index: h.First})
	}
	if first := found[0].seg.id; first > max(1, l.front) {
		records = append(records, header{kind: kindFront, index: first})
		l.front = first
	}
	for _, h := range records {
		if _, err := l.put(h, nil); err != nil {
			return err
		}
	}
	if err := l.flush(); err != nil {
		return err
	}
	return l.syncTail()
}
