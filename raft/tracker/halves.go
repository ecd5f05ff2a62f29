package tracker

import "github.com/millrace/millrace/raft/quorum"

// Halves says where in a leader's Peers the voters of each half of its configuration are. With it the commit index, which
// is asked for at nearly every acknowledgement, is found without a look into a map. It is made anew with Peers, when the
// configuration changes, and wrong for any others.
//
// quorum.JointConfig answers the same from the sets themselves; a property in halves_test.go holds the two together.
type Halves [2][]int

// MakeHalves finds the voters of a configuration among its members.
func MakeHalves(c Config, peers Peers) Halves {
	var h Halves
	for half, voters := range c.Voters {
		for i := range peers {
			if _, votes := voters[peers[i].ID]; votes {
				h[half] = append(h[half], i)
			}
		}
	}
	return h
}

// CommittedIndex returns the highest index that both halves are known to hold.
func (h *Halves) CommittedIndex(peers Peers) quorum.Index {
	if len(h[1]) == 0 {
		return h.half(0, peers)
	}
	return min(h.half(0, peers), h.half(1, peers))
}

func (h *Halves) half(i int, peers Peers) quorum.Index {
	var few [7]quorum.Index // no allocation for clusters of the usual size
	acked := few[:0]
	for _, at := range h[i] {
		acked = append(acked, quorum.Index(peers[at].Progress.Match))
	}
	return quorum.Majority(acked)
}
