package wal

import "github.com/millrace/millrace/wal/record"

// A sweep goes over the oldest segment once, in pieces, for all groups together. Either it moves out what
// is needed. Or it only finds out where runs begin whose first entries were compacted: such a run may hold
// a segment although its remaining entries are in later ones. A piece reads at most 1 MiB of records, or
// one larger record, and changes groups one by one. So freeing a segment costs reading the parts of it in
// which runs are (spans.go) and writing what is needed of it, however many groups there are.
//
//	records: entries that a run says are here                 ── write again, or set the run to where it begins
//	groups:  states and tombstones that are here              ── write again
//	         runs that still begin here, with a long stride   ── begin in the next segment: none is left here
//
// Rejected: moving group by group (each piece then searches for the next group, which took 41 s for 10,000
// groups).

const (
	// moveBytes bounds the records that one piece of a sweep reads, and those that it writes.
	moveBytes = 1 << 20
	// sweepGroups and sweepRuns bound what one piece looks at in memory, with Log.mu held.
	sweepGroups = 512
	sweepRuns   = 4096
)

// sweep is how far the helper has got. The zero value is no sweep.
type sweep struct {
	segment uint64
	moves   bool
	spans   []span       // where records are still to be looked at, in order
	at      recordWalker // the next record, if it is in spans[0]
	records bool         // all of them were looked at
	listed  bool         // groups lists all groups of that time
	groups  []*Group
	lo      uint64 // of groups[0]: runs at and above this index are not done yet

	// done is the segment from which everything was moved last, and cleanBelow the cleaner's bound at that
	// time: a move must not be the reason for the next one.
	done, cleanBelow uint64
}

// beginSweep decides whether to sweep the lowest needed segment, and how. It moves out what is needed if
// that pays off. Otherwise it looks where runs begin, if all runs that hold the segment may begin later.
func (l *Log) beginSweep(v *survey) bool {
	s := &l.cleaner.sweep
	moves := v.pays(l.opts.SegmentBytes) && (s.done != v.needed || s.cleanBelow != v.cleanBelow)
	seg := l.table.segment(v.needed)
	if seg == nil || v.needed == v.tail.id || !moves && (v.oldest.loose == 0 || v.oldest.loose < v.oldest.runs) {
		return false
	}
	next := sweep{segment: v.needed, moves: moves, records: v.oldest.runs == 0, done: s.done, cleanBelow: s.cleanBelow}
	next.spans, next.at = l.table.spansIn(seg), recordWalker{table: l.table, seg: seg, last: uint32(seg.id)}
	if moves {
		next.done, next.cleanBelow = v.needed, v.cleanBelow
	}
	*s = next
	l.mu.Lock()
	l.table.indexes.beginEpoch()
	l.mu.Unlock()
	return true
}

// sweepPiece does one piece of a sweep. It reports whether there may be more to do.
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
	if s.moves {
		if found, err := l.sweepTombstones(); found {
			return true, err
		}
	}
	s.segment, s.groups, s.spans, s.at = 0, nil, nil, recordWalker{}
	return true, nil
}

// holds reports whether the sweep has something left to do in a segment.
func (l *Log) holds(segment uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	d := l.table.indexes.of(uint32(segment))
	return d.loose > 0 || l.cleaner.sweep.moves && d.runs+d.states > 0
}

// found is an entry that a sweep has read.
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
	piece := int64(moveBytes)
	if !s.moves { // it often ends with the first records
		piece = windowBytes
	}
	for looked := int64(0); looked < piece; {
		f, ends, err := s.next(l)
		if err != nil {
			return err
		}
		if ends {
			s.records = true
			break
		}
		looked += f.Bytes()
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

// next looks at one record. It is wanted if a run has it there and the sweep has something to do with it.
func (s *sweep) next(l *Log) (f found, ends bool, err error) {
	if !s.reach() {
		return f, true, nil
	}
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

// reach goes to the next record of a span. It reports false if there is none.
func (s *sweep) reach() bool {
	for len(s.spans) > 0 && s.at.off >= s.spans[0].end {
		s.spans = s.spans[1:]
	}
	if len(s.spans) == 0 {
		return false
	}
	next := &s.spans[0]
	if s.at.off < next.off {
		s.at.off, s.at.chain = next.off, next.seed
	}
	s.at.end = next.end
	return true
}

// stands reports whether a run has the entry there, so that it must be moved, or the run can be set to it.
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

// tighten sets a loose run to its first entry. mu is held.
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

// moveEntries writes those entries again that are still where they were found.
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
			g.move(f.Index, f.Term, f.Type, f.moved)
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
				return nil // the next piece continues with the same group
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

// advanceRuns lets the runs of a group that begin in the segment begin in the next one, if the sweep found
// no entry of them here. It reports whether it is done with the group. mu is held.
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
		// The sweep may have set a run to its first entry here, or found that entry, and the entry is gone
		// since. Then the next entry of the run may be here too.
		if uint64(m.segment) == s.segment && m.last != m.segment && (s.moves || m.loose != 0 && m.loose != l.table.indexes.epoch) {
			l.table.indexes.beginIn(next, m)
		}
	}
	return k == len(g.index.runs)
}

// beginIn lets a run begin where the records of a segment do.
func (all *indexes) beginIn(s *segment, m *run) {
	all.sub(m)
	m.segment, m.off, m.seed = uint32(s.id), record.SegmentHeaderBytes, s.head.CRC
	m.loose = 0
	if m.last != m.segment {
		m.loose = all.epoch
	}
	all.add(m)
}

// skipFront lets the runs that begin before the first needed segment begin there. A sweep of the last life
// found that nothing in the earlier segments is needed; a replay of them joins runs as if it were. No
// reader has the log yet.
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
