package wal

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/wal/record"
)

// Damage takes the term and vote of a group if none was written behind them: the one that is read before the
// damage is older, also in the same segment. One in a later segment has replaced what is lost. (Seen,
// planted: the segments were not compared, or an equal one counted as later.)
func TestDamageTakesTheLastVote(t *testing.T) {
	state := func(term uint64) record.Header {
		return record.Header{Kind: record.KindHardState, Group: 1, Term: term}
	}
	vote := make([]byte, record.HardStateBytes)
	for _, row := range []struct {
		name          string
		before, later bool // than the damage, in a record that is whole
		lost          bool
	}{
		{"the only one", false, false, true},
		{"an older one is in the same segment", true, false, true},
		{"a later one is in the next segment", false, true, false},
		{"both", true, true, false},
	} {
		for _, part := range []bool{false, true} { // of a write that the damage cuts
			one := forge(1).link(nil).entry(1)
			if row.before {
				one.add(state(2), vote)
			}
			if part {
				h := state(3)
				h.Edge = record.Begins
				one.addPart(h, vote).part(0, 2)
			} else {
				one.entry(2)
			}
			damage := len(one.data) - 1 // the last byte of the data of entry 2
			if !part {
				one.add(state(3), vote)
			}
			two := forge(2).link(one)
			if part {
				two.part(record.Ends, 3)
			}
			if row.later {
				two.add(state(4), vote)
			}
			two.add(record.Header{Kind: record.KindWatermark, Durable: record.SegmentHeaderBytes}, nil)
			dir := forgedDir(one, two)
			dir[record.SegmentName(1)][damage] ^= 1
			in := mustInspect(t, diskOf(t, dir))
			lost := slices.ContainsFunc(in.Findings, func(f Finding) bool { return slices.Contains(f.LostStates, 1) })
			if damaged := slices.ContainsFunc(in.Findings, func(f Finding) bool { return f.Kind == Damaged }); !damaged || lost != row.lost {
				t.Errorf("%s, part of a write: %t: the vote is lost: %t, want %t: %+v", row.name, part, lost, row.lost, in.Findings)
			}
		}
	}
}
