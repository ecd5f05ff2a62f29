package tracker

import "github.com/millrace/millrace/raft/quorum"

// JointVoters says where in a leader's Members the voters of each half of the configuration are. With it the
// leader finds the commit index, which it needs at nearly every acknowledgement, without a lookup in a map.
// It is made again, together with Members when the configuration changes, and is wrong for any other Members.
//
// quorum.JointConfig computes the same index from the sets themselves; a property test in jointvoters_test.go
// compares the two.
type JointVoters [2][]int

// MakeJointVoters finds the voters of a configuration among its members.
func MakeJointVoters(c Config, members Members) JointVoters {
	var v JointVoters
	for half, voters := range c.Voters {
		for i := range members {
			if _, votes := voters[members[i].ID]; votes {
				v[half] = append(v[half], i)
			}
		}
	}
	return v
}

// CommittedIndex returns the highest index that both halves are known to hold.
func (v *JointVoters) CommittedIndex(members Members) quorum.Index {
	if len(v[1]) == 0 {
		return v.half(0, members)
	}
	return min(v.half(0, members), v.half(1, members))
}

func (v *JointVoters) half(i int, members Members) quorum.Index {
	var few [7]quorum.Index // no allocation for clusters of the usual size
	acked := few[:0]
	for _, at := range v[i] {
		acked = append(acked, members[at].Progress.counts())
	}
	return quorum.Majority(acked)
}
