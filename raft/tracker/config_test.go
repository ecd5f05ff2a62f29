package tracker

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/millrace/millrace/raft/raftpb"
)

var joint = raftpb.ConfState{
	Voters: []uint64{1, 2}, VotersOutgoing: []uint64{2, 3}, Learners: []uint64{4}, LearnersNext: []uint64{3}, AutoLeave: true,
}

func TestConfigKeepsEveryFieldOfItsStoredForm(t *testing.T) {
	for _, cs := range []raftpb.ConfState{{}, {Voters: []uint64{1, 2, 30}}, joint} {
		c := MakeConfig(cs)
		if have := c.ConfState(); !cmp.Equal(have, cs) {
			t.Error(cmp.Diff(cs, have))
		}
		if have := c.Clone().ConfState(); !cmp.Equal(have, cs) {
			t.Error("clone:", cmp.Diff(cs, have))
		}
	}
}

func TestConfigCloneSharesNothing(t *testing.T) {
	c := MakeConfig(joint)
	clone := c.Clone()
	for _, set := range []map[uint64]struct{}{clone.Voters[0], clone.Voters[1], clone.Learners, clone.LearnersNext} {
		set[99] = struct{}{}
	}
	if have := c.ConfState(); !cmp.Equal(have, joint) {
		t.Error(cmp.Diff(joint, have))
	}
}

func TestConfigString(t *testing.T) {
	for _, row := range []struct {
		cs   raftpb.ConfState
		want string
	}{
		{raftpb.ConfState{}, "voters=()"},
		{raftpb.ConfState{Voters: []uint64{2, 1}}, "voters=(1 2)"},
		{joint, "voters=(1 2)&&(2 3) learners=(4) learners_next=(3) autoleave"},
	} {
		c := MakeConfig(row.cs)
		if have := c.String(); have != row.want || c.IsJoint() != (len(row.cs.VotersOutgoing) > 0) {
			t.Errorf("have %s (joint: %v), want %s", have, c.IsJoint(), row.want)
		}
	}
}

// A leader's view goes to the algebra of membership and comes back the same, in order, and as a copy.
func TestPeersThereAndBack(t *testing.T) {
	peers := MakeMembers(MakeConfig(joint), 7, 3, 0)
	peers.Get(2).MaybeUpdate(5)
	m := peers.Map()
	m[1].RecentActive = true
	if want, have := "1: StateProbe match=0 next=8\n"+
		"2: StateProbe match=5 next=8 inactive\n"+
		"3: StateProbe match=0 next=8 inactive\n"+
		"4: StateProbe match=0 next=8 learner inactive\n", m.String(); have != want {
		t.Errorf("have\n%swant\n%s", have, want)
	}
	if peers.Get(1).RecentActive {
		t.Error("the map shares its views with the members")
	}
	peers.Get(1).RecentActive = true
	if have := m.Members(); !cmp.Equal(have, peers, cmp.AllowUnexported(Progress{}, Inflights{}, inflight{})) {
		t.Error(cmp.Diff(peers, have, cmp.AllowUnexported(Progress{}, Inflights{}, inflight{})))
	}
}
