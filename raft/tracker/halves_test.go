package tracker

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/raft/raftpb"
)

// The positions answer what the sets do, in every configuration and for whatever the members hold.
func TestHalvesAgreeWithTheirSets(t *testing.T) {
	ids := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 20), 0, 12, rapid.ID[uint64])
	rapid.Check(t, func(t *rapid.T) {
		c := MakeConfig(raftpb.ConfState{
			Voters:         ids.Draw(t, "voters"),
			VotersOutgoing: ids.Draw(t, "outgoing"),
			Learners:       ids.Draw(t, "learners"),
		})
		peers := MakePeers(c, 0, 1, 0)
		halves := MakeHalves(c, peers)
		for range 4 {
			for i := range peers {
				peers[i].Progress.Match = rapid.Uint64Range(0, 20).Draw(t, "match")
			}
			if have, want := halves.CommittedIndex(peers), c.Voters.CommittedIndex(peers); have != want {
				t.Fatalf("%v with %v: have %v, want %v", c, peers.Map(), have, want)
			}
		}
	})
}
