package core

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
)

// Which configurations may follow each other, by their quorums.
func TestQuorumsMeet(t *testing.T) {
	simple := func(ids ...uint64) raftpb.ConfState { return raftpb.ConfState{Voters: ids} }
	joint := raftpb.ConfState{Voters: []uint64{4, 5, 6}, VotersOutgoing: []uint64{1, 2, 3}}
	for _, row := range []struct {
		a, b raftpb.ConfState
		meet bool
	}{
		{simple(1, 2, 3), simple(1, 2, 3), true},
		{simple(1, 2, 3), simple(1, 2, 3, 4), true},
		{simple(1, 2), simple(1), true},
		{simple(1, 2, 3), simple(1, 2, 3, 4, 5), false},
		{simple(1, 2, 3), simple(4, 5, 6), false},
		{simple(1), simple(1, 2, 3), false},
		{simple(1, 2, 3), joint, true},
		{joint, simple(4, 5, 6), true},
		{joint, simple(4, 5, 7), false},
		{joint, simple(7, 8, 9), false},
	} {
		if got := meet(&row.a, &row.b); got != row.meet {
			t.Errorf("%v and %v: %t", row.a, row.b, got)
		}
	}
}

// What a node keeps of the changes in its log when entries are replaced.
func TestChangesBeforeAnIndex(t *testing.T) {
	if got := before([]uint64{3, 7, 9}, 7); len(got) != 1 || got[0] != 3 {
		t.Errorf("of changes at 3, 7 and 9 before entry 7: %v", got)
	}
}

// A log that became shorter under its leader is found; one that stays, or that a new leader has, is not.
func TestALeadersLogDoesNotBecomeShorter(t *testing.T) {
	w := newWorld(Options{Seed: 1, Ticks: 1})
	n := w.nodes[0]
	n.leads, n.term, n.last = true, 3, 7
	broken := func(term, last uint64) (of property.Name) {
		defer func() {
			if v, ok := recover().(*Violation); ok {
				of = v.Property
			}
		}()
		w.oracle.appendsOnly(n, term, last)
		return ""
	}
	if have := broken(3, 6); have != property.LeaderAppendOnly {
		t.Errorf("one entry fewer in the same term breaks %q, want %q", have, property.LeaderAppendOnly)
	}
	if have := broken(3, 7) + broken(3, 8) + broken(4, 2); have != "" {
		t.Errorf("a log that is as long, longer, or of another term breaks %q", have)
	}
}
