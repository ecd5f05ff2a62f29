package wal

import "github.com/millrace/millrace/wal/record"

// A sweep goes over the oldest segment once, in pieces, for all groups together. It moves out what is needed, or it only finds out
// where marks begin whose first entries were compacted: such a mark may hold a segment for the sake of entries that stand in a
// later one. A piece reads at most a MiB of records, or one that is larger, and changes groups one by one. So what it takes
// to free a segment is to read it, and to write what is needed of it, however many groups there are.
//
//	records: entries of which a mark says that they are here   ── write again, or set the mark to where it begins
//	groups:  states that are here                              ── write again
//	         marks that still begin here, in a long stride     ── begin in the next segment: nothing of them is left in this one
//
// Rejected: moving group by group (each piece then looks for the next group, which took 41 s for 10,000 of them).

const (
	// moveBytes bounds the records that one piece of a sweep reads, and those that it writes.
	moveBytes = 1 << 20
	// sweepGroups and sweepMarks bound what one piece looks at in memory, with Log.mu held.
	sweepGroups = 512
	sweepRuns   = 4096
)

// sweep is where the helper is. The zero value is nowhere.
type sweep struct {
	segment uint64
	moves   bool
	at      recordWalker // the next record
	records bool         // all of them were looked at
	listed  bool         // groups are those that were there then
	groups  []*Group
	lo      uint64 // of groups[0]: marks from this index on are to be looked at

	// done is the segment from which everything was moved last, and the goal at that time: moving cannot be its own reason.
	done, cleanBelow uint64
	// first is the first record of the segment that a sweep found needed: the next one of the same segment may begin there.
	first recordWalker
}

// beginSweep decides whether to sweep the lowest segment that is needed, and how: to move out what is needed, if that pays, or
// else to look where marks begin, if all that hold the segment may begin later.
func (l *Log) beginSweep(v *survey) bool {
	s := &l.cleaner.sweep
	moves := v.pays(l.opts.SegmentBytes) && (s.done != v.needed || s.cleanBelow != v.cleanBelow)
	seg := l.table.segment(v.needed)
	if seg == nil || v.needed == v.tail.id || !moves && (v.oldest.loose == 0 || v.oldest.loose < v.oldest.runs) {
		return false
	}
	next := sweep{segment: v.needed, moves: moves, records: v.oldest.runs == 0, done: s.done, cleanBelow: s.cleanBelow}
	next.at = recordWalker{table: l.table, seg: seg, off: record.SegmentHeaderBytes, chain: seg.head.CRC, last: uint32(seg.id), end: seg.size}
	if s.first.seg == seg {
		next.at, next.first = s.first, s.first
	}
	if moves {
		next.done, next.cleanBelow = v.needed, v.cleanBelow
	}
	*s = next
	l.mu.Lock()
	l.table.indexes.beginEpoch()
	l.mu.Unlock()
	return true
}

// sweepPiece does one piece of a sweep. It reports false if there is nothing to go on with.
func (l *Log) sweepPiece() (more bool, err error) {
	s := &l.cleaner.sweep
	if !s.records {
		return true, l.sweepRecords()
	}
	if !s.listed {
		s.groups, s.listed = l.table.someGroups(), true
	}
	if len(s.groups) > 0 && l.holds(s.segment) {
		return true, l.sweepGroups()
	}
	s.segment, s.groups, s.at = 0, nil, recordWalker{}
	return true, nil
}

// holds reports whether the sweep has something left to do in a segment.
func (l *Log) holds(segment uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.table.indexes.of(uint32(segment))
	return d.loose > 0 || l.cleaner.sweep.moves && d.runs+d.states > 0
}

// found is an entry that a sweep has come to.
type found struct {
	record.Header
	body   []byte
	at     spot
	moved  spot
	wanted bool
}

// sweepRecords looks at the next records of the segment.
func (l *Log) sweepRecords() error {
	s := &l.cleaner.sweep
	var found []found
	for begin := s.at.off; s.at.off < begin+moveBytes; {
		f, ends, err := s.next(l)
		if err != nil {
			return err
		}
		if ends {
			s.records = true
			break
		}
		if !f.wanted {
			continue
		}
		found = append(found, f)
	}
	if s.moves {
		return l.moveEntries(found)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range found {
		l.tighten(&found[i])
	}
	if l.table.indexes.of(uint32(s.segment)).loose == 0 {
		s.records = true
	}
	return nil
}

// next looks at one record. What it finds is wanted if a mark has it there and the sweep has something to do with it.
func (s *sweep) next(l *Log) (f found, ends bool, err error) {
	w := &s.at
	h, why, err := w.header()
	if err != nil || why == record.FlawZero || why == record.FlawShort {
		return f, true, err
	}
	corrupt := func() error {
		return &CorruptError{File: w.seg.path, Offset: w.off, Group: h.Group, Index: h.Index, Reason: string(why)}
	}
	if why != record.FlawNone {
		return f, false, corrupt()
	}
	f = found{Header: h, at: spot{segment: w.seg.id, off: w.off, end: w.off + h.Bytes(), seed: w.chain}}
	if (h.Kind == record.KindEntry || h.Kind == record.KindMoved) && l.stands(&f) {
		if s.first.seg != w.seg {
			s.first = *w
			s.first.window = nil
		}
		f.wanted = true
		if s.moves {
			if f.body, why, err = w.body(h); err != nil {
				return f, false, err
			}
			if why != record.FlawNone {
				return f, false, corrupt()
			}
			f.body = append(make([]byte, 0, len(f.body)), f.body...) // the window moves on
		}
	}
	w.skip(h)
	return f, false, nil
}

// stands reports whether a mark has the entry there, so that it must be moved, or the mark can be set to it.
func (l *Log) stands(f *found) bool {
	g := l.table.known(f.Group)
	if g == nil {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.index.at(f.Index)
	return m != nil && m.term == f.Term && m.covers(f.at.segment, f.at.off)
}

// tighten sets a loose mark to its first entry. mu is held.
func (l *Log) tighten(f *found) {
	if !l.stands(f) {
		return
	}
	g := l.table.known(f.Group)
	g.mu.Lock()
	defer g.mu.Unlock()
	if m := g.index.at(f.Index); m.loose != 0 && m.lo == f.Index {
		l.table.indexes.sub(m)
		m.segment, m.off, m.seed, m.loose = uint32(f.at.segment), uint32(f.at.off), f.at.seed, 0
		l.table.indexes.add(m)
	}
}

// moveEntries writes again those of the entries that are still where they were found.
func (l *Log) moveEntries(found []found) error {
	if len(found) == 0 {
		return nil
	}
	sizes := func() (sizes []int64) {
		for i := range found {
			f := &found[i]
			if f.wanted = l.stands(f); f.wanted { // or it was compacted or replaced since it was read
				sizes = append(sizes, f.Bytes())
			}
		}
		return sizes
	}
	return l.appendRecords(sizes, func() (err error) {
		for i := range found {
			f := &found[i]
			if !f.wanted {
				continue
			}
			f.moved, err = l.put(record.Header{Kind: record.KindMoved, Type: f.Type, Group: f.Group, Index: f.Index, Term: f.Term}, f.body)
			if err != nil {
				return err
			}
		}
		return nil
	}, func() { // now readers can be sent there
		for i := range found {
			f := &found[i]
			if !f.wanted {
				continue
			}
			g := l.table.known(f.Group)
			g.mu.Lock()
			g.move(f.Index, f.Term, f.moved)
			g.mu.Unlock()
			l.stats.movedEntries.Add(1)
		}
		l.table.boundIndex()
	})
}

// sweepGroups looks at the next groups.
func (l *Log) sweepGroups() error {
	s := &l.cleaner.sweep
	groups := s.groups[:min(sweepGroups, len(s.groups))]
	sizes := func() (sizes []int64) {
		for _, g := range groups {
			if s.moves && g.startAt == s.segment {
				sizes = append(sizes, record.Bytes(0))
			}
			if s.moves && g.hsAt == s.segment {
				sizes = append(sizes, record.Bytes(record.HardStateBytes))
			}
		}
		return sizes
	}
	type pin struct {
		group *Group
		set   func(*Group, uint64)
		at    uint64
	}
	var pins []pin
	return l.appendRecords(sizes, func() error {
		budget := sweepRuns
		for _, g := range groups {
			if !l.advanceRuns(g, &budget) {
				return nil // go on with the same group
			}
			s.groups, s.lo = s.groups[1:], 0
			if !s.moves {
				continue
			}
			if g.startAt == s.segment {
				at, err := l.putStart(g.id, record.KindBase, g.start, oneRecord())
				if err != nil {
					return err
				}
				pins = append(pins, pin{g, (*Group).pinStart, at})
			}
			if g.hsAt == s.segment {
				at, err := l.putHardState(g.id, g.hs, oneRecord())
				if err != nil {
					return err
				}
				pins = append(pins, pin{g, (*Group).pinHardState, at})
			}
		}
		return nil
	}, func() {
		for _, p := range pins {
			p.set(p.group, p.at)
		}
	})
}

// advanceMarks lets marks of a group that begin in the segment, and of which the sweep found no entry there, begin in the next. It
// reports whether it is through with the group. mu is held.
func (l *Log) advanceRuns(g *Group, budget *int) (through bool) {
	s := &l.cleaner.sweep
	next := l.table.segment(s.segment + 1)
	if l.table.indexes.of(uint32(s.segment)).runs == 0 || next == nil {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.index.find(s.lo)
	for ; k < len(g.index.runs) && *budget > 0; k++ {
		*budget--
		m := &g.index.runs[k]
		s.lo = m.hi()
		// A mark that the sweep has set to its first entry, or found there, and that lost this entry since, may have the next one here.
		if uint64(m.segment) == s.segment && m.last != m.segment && (s.moves || m.loose != 0 && m.loose != l.table.indexes.epoch) {
			l.table.indexes.beginIn(next, m)
		}
	}
	return k == len(g.index.runs)
}

// beginIn lets a mark begin where the records of a segment do.
func (all *indexes) beginIn(s *segment, m *run) {
	all.sub(m)
	m.segment, m.off, m.seed = uint32(s.id), record.SegmentHeaderBytes, s.head.CRC
	m.loose = 0
	if m.last != m.segment {
		m.loose = all.epoch
	}
	all.add(m)
}

// skipFront lets the marks that begin before the front begin there. A sweep of the life before found that nothing is needed of
// those segments; a replay of them joins marks as if it were. No reader has the log yet.
func (sc *scan) skipFront() {
	front := sc.table.segments[sc.firstNeeded]
	if front == nil {
		return
	}
	for _, g := range sc.table.allGroups() {
		for i := range g.index.runs {
			m := &g.index.runs[i]
			if m.loose == 0 || uint64(m.segment) >= sc.firstNeeded || uint64(m.last) < sc.firstNeeded {
				continue
			}
			sc.table.indexes.beginIn(front, m)
		}
	}
}
