package tracker

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// JointVoters answers what the sets of voters answer, in every configuration and whatever the members hold.
func TestJointVotersAgreeWithTheirSets(t *testing.T) {
	ids := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 20), 0, 12, rapid.ID[uint64])
	rapid.Check(t, func(t *rapid.T) {
		c := MakeConfig(raftpb.ConfState{
			Voters:         ids.Draw(t, "voters"),
			VotersOutgoing: ids.Draw(t, "outgoing"),
			Learners:       ids.Draw(t, "learners"),
		})
		members := MakeMembers(c, 0, 1, 0)
		voters := MakeJointVoters(c, members)
		for range 4 {
			for i := range members {
				members[i].Progress.Match = rapid.Uint64Range(0, 20).Draw(t, "match")
			}
			if have, want := voters.CommittedIndex(members), c.Voters.CommittedIndex(members); have != want {
				t.Fatalf("%v with %v: have %v, want %v", c, members.Map(), have, want)
			}
		}
	})
}
