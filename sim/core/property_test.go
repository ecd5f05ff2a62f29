package core

import (
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
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
