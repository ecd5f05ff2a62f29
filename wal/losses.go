package wal

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	"github.com/millrace/millrace/wal/record"
)

// This file says which entries a finding has cost. Two sources tell: the headers that can still be read
// behind the damage, and the holes that remain in the groups when everything valid was replayed.

// beyondDamage is what the headers behind a damaged place name.
type beyondDamage struct {
	segment uint64
	file    string
	entries []EntryRange
	moved   []EntryRange // copies of what stood elsewhere
	states  []uint64
}

// lookBeyondDamage notes what the headers behind the valid records of t say was there.
func (s *inspectionPass) lookBeyondDamage(t *trace, id uint64) {
	if t == nil || t.end == 0 {
		return
	}
	seal := t.seg.head.Seal()
	if !t.head {
		seal = record.GuessSeal(s.buf, id)
	}
	u := beyondDamage{segment: id, file: t.seg.path}
	states := map[uint64]bool{}
	size := int64(len(s.buf))
	for off := t.end; off+record.HeaderBytes <= size; off += record.Alignment {
		off += int64(record.FirstNonZero(s.buf[off:])) &^ (record.Alignment - 1)
		if off+record.HeaderBytes > size || s.buf[off] != record.Magic {
			continue
		}
		h, why := record.ParseHeader(s.buf[off:], seal, off)
		if why != record.FlawNone {
			continue
		}
		switch h.Kind {
		case record.KindEntry:
			u.entries = addEntry(u.entries, h.Group, h.Index)
		case record.KindMoved:
			u.moved = addEntry(u.moved, h.Group, h.Index)
		case record.KindHardState:
			states[h.Group] = true
		case record.KindDeletion:
			of := func(r EntryRange) bool { return r.Group == h.Group }
			u.entries, u.moved = slices.DeleteFunc(u.entries, of), slices.DeleteFunc(u.moved, of)
			delete(states, h.Group)
		}
		off += h.Bytes() - record.Alignment
	}
	u.states = slices.Sorted(maps.Keys(states))
	s.beyond = append(s.beyond, u)
}

// addEntry adds one entry to ranges, to the last one of its group if it continues that.
func addEntry(ranges []EntryRange, group, i uint64) []EntryRange {
	for k := len(ranges) - 1; k >= 0; k-- {
		if r := &ranges[k]; r.Group == group {
			if r.Last+1 == i {
				r.Last = i
				return ranges
			}
			break
		}
	}
	return append(ranges, EntryRange{group, i, i})
}

// loseParts adds the parts of cut writes to the loss of the damage that cut them: they are valid, and count
// for nothing.
func (s *inspectionPass) loseParts() {
	in := s.in
	for _, p := range in.scan.unfinished.lost {
		f := cutBy(in.Findings, in.scan.table.segmentPath(uint64(p.segment)))
		switch {
		case f == nil || s.deleted[p.group] > uint64(p.segment):
		case p.kind == record.KindEntry:
			f.Lost = append(f.Lost, in.gone([]EntryRange{{p.group, p.index, p.index}}, uint64(p.segment))...)
		case p.kind == record.KindHardState && in.scan.table.group(p.group).hsAt <= uint64(p.segment) && !slices.Contains(f.LostStates, p.group):
			f.LostStates = append(f.LostStates, p.group)
		}
	}
}

// cutBy returns the first damage in or behind a file, or nil.
func cutBy(findings []Finding, file string) (first *Finding) {
	for i := range findings {
		if f := &findings[i]; f.Kind != TornEnd && f.Kind != Warned && f.File >= file && (first == nil || f.File < first.File) {
			first = f
		}
	}
	return first
}

// explain adds the lost entries to each finding: those that headers behind the damage name and that no
// valid record holds. An entry at the same index in an earlier segment is the one that they replaced.
func (s *inspectionPass) explain() {
	in := s.in
	for i := range in.Findings {
		f := &in.Findings[i]
		if f.Kind == TornEnd || f.Kind == Warned || f.Rule == "R9" {
			continue
		}
		var corrupt *CorruptError
		if errors.As(f.Err, &corrupt) && corrupt.Index > 0 && corrupt.Through == 0 {
			f.Lost = append(f.Lost, EntryRange{corrupt.Group, corrupt.Index, corrupt.Index})
		}
		lost := in.gone(f.Lost, 0)
		for _, u := range s.beyond {
			if u.file != f.File {
				continue
			}
			deleted := func(r EntryRange) bool { return s.deleted[r.Group] > u.segment }
			lost = append(lost, in.gone(slices.DeleteFunc(u.moved, deleted), 0)...)
			lost = append(lost, in.gone(slices.DeleteFunc(u.entries, deleted), u.segment)...)
			for _, id := range u.states {
				if s.deleted[id] <= u.segment && in.scan.table.group(id).hsAt <= u.segment {
					f.LostStates = append(f.LostStates, id)
				}
			}
		}
		f.Lost = lost
	}
}

// extendLosses extends the losses above the end of a group down to that end, and over what lies between
// them. Entries are contiguous, so an entry that a header behind the damage names shows that all entries
// before it were there, and their headers may be what was destroyed. A salvage names the same entries
// (findHoles).
func (s *inspectionPass) extendLosses() {
	in := s.in
	inOrder := make([]*Finding, len(in.Findings))
	for i := range in.Findings {
		inOrder[i] = &in.Findings[i]
	}
	slices.SortStableFunc(inOrder, compareFindings)
	next := map[uint64]uint64{} // for each group, the first entry above its end that no finding has yet
	for _, f := range inOrder {
		through := map[uint64]uint64{}
		for _, r := range f.Lost {
			if id := s.deleted[r.Group]; id == 0 || in.scan.table.segmentPath(id) <= f.File {
				through[r.Group] = max(through[r.Group], r.Last)
			}
		}
		for _, group := range slices.Sorted(maps.Keys(through)) {
			first := max(next[group], in.scan.table.group(group).last+1)
			if last := through[group]; last >= first {
				f.Lost = append(f.Lost, EntryRange{group, first, last})
				next[group] = last + 1
			}
		}
	}
}

// compareFindings orders findings by their places.
func compareFindings(a, b *Finding) int {
	return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Offset, b.Offset))
}

// gone returns the parts of ranges that the log does not hold in segments above through. Compacted entries
// do not count as lost.
func (in *Inspection) gone(ranges []EntryRange, through uint64) (left []EntryRange) {
	for _, r := range ranges {
		g := in.scan.table.group(r.Group)
		lo := max(r.First, g.start.Index+1)
		for lo <= r.Last {
			k := g.index.find(lo)
			if k == len(g.index.runs) || g.index.runs[k].lo > r.Last {
				left = append(left, EntryRange{r.Group, lo, r.Last})
				break
			}
			m := &g.index.runs[k]
			if uint64(m.last) <= through {
				left = append(left, EntryRange{r.Group, lo, min(r.Last, m.hi()-1)})
			} else if m.lo > lo {
				left = append(left, EntryRange{r.Group, lo, m.lo - 1})
			}
			lo = m.hi()
		}
	}
	return left
}

// joinRanges puts ranges in order and joins those that touch.
func joinRanges(left []EntryRange) (joined []EntryRange) {
	slices.SortFunc(left, func(a, b EntryRange) int { return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.First, b.First)) })
	for _, r := range left {
		if n := len(joined); n > 0 && joined[n-1].Group == r.Group && r.First <= joined[n-1].Last+1 {
			joined[n-1].Last = max(joined[n-1].Last, r.Last)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}
