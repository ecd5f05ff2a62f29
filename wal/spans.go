package wal

import (
	"cmp"
	"slices"
)

// The cleaner reads a segment to empty it. Often little of it is needed: the end, where one group's newest
// entries are, or a few records of a slow group. Reading all of it takes bandwidth from the appends. So a
// sweep reads only where runs are.

// span is a part of a segment in which a run has entries.
type span struct {
	off  int64  // of a record
	end  int64  // after the last entry, or further
	seed uint32 // the chain before the record at off
}

const (
	// spanGapBytes is up to how far apart two spans are read as one.
	spanGapBytes = 64 << 10
	// spansAtOnce is how many spans are collected before they are joined.
	spansAtOnce = 4096
)

// spansIn returns where the entries of a segment are, in order. Runs begin in it or later: no earlier segment
// is needed. Entries may leave a span afterwards, and none comes to a sealed segment.
func (t *table) spansIn(seg *segment) (spans []span) {
	limit := spansAtOnce
	for _, g := range t.someGroups() {
		spans = g.appendSpans(spans, seg)
		if len(spans) >= limit {
			spans = joinSpans(spans)
			limit = 2*len(spans) + spansAtOnce
		}
	}
	return joinSpans(spans)
}

// appendSpans appends the places of a group's runs in seg.
func (g *Group) appendSpans(spans []span, seg *segment) []span {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range g.index.runs {
		m := &g.index.runs[i]
		if uint64(m.segment) != seg.id {
			continue
		}
		s := span{off: int64(m.off), end: int64(m.end), seed: m.seed}
		if m.last != m.segment {
			s.end = seg.size
		}
		spans = append(spans, s)
	}
	return spans
}

// joinSpans sorts spans, and joins those that overlap or are close to each other.
func joinSpans(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.off, b.off) })
	joined := spans[:0]
	for _, s := range spans {
		if n := len(joined); n > 0 && s.off <= joined[n-1].end+spanGapBytes {
			joined[n-1].end = max(joined[n-1].end, s.end)
			continue
		}
		joined = append(joined, s)
	}
	return joined
}
