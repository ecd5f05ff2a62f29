package core

import (
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
)

// Each change of members leads to one configuration everywhere (thesis §4.3), whichever member applies it,
// from its log or from a snapshot. Each quorum of a configuration has a member in common with each quorum of
// the next one (§4.1). No log has two changes of which none is committed (§4.1). Checked at each change that
// is applied, and at each one that is written.

// changed checks the configuration after a change of members.
func (o *oracle) changed(n *node, index uint64) {
	if last := o.confs[len(o.confs)-1]; index > last.index {
		if len(last.conf.Voters) > 0 && !meet(&last.conf, &n.conf) {
			violate(property.QuorumsIntersect, "entry %d leads from %s to %s, and quorums of them need not meet", index, raft.DescribeConfState(last.conf), raft.DescribeConfState(n.conf))
		}
		o.confs = append(o.confs, confFrom{index, n.conf})
		for i := range o.w.nodes {
			id := uint64(i + 1)
			if isMember(&last.conf, id) && !isMember(&n.conf, id) {
				o.gone[id] = true
			}
		}
		return
	}
	if err := n.conf.Equivalent(o.confAt(index)); err != nil {
		violate(property.OneConfiguration, "node %d after the change of entry %d: %v", n.id, index, err)
	}
}

func isMember(c *raftpb.ConfState, id uint64) bool {
	for _, list := range [][]uint64{c.Voters, c.VotersOutgoing, c.Learners, c.LearnersNext} {
		for _, m := range list {
			if m == id {
				return true
			}
		}
	}
	return false
}

// meet reports whether any two quorums of two configurations share a member. A joint configuration needs a
// majority of each half, so it is enough that the majorities of one half of each meet.
func meet(a, b *raftpb.ConfState) bool {
	for _, x := range [][]uint64{a.Voters, a.VotersOutgoing} {
		for _, y := range [][]uint64{b.Voters, b.VotersOutgoing} {
			all := len(x)
			for _, id := range y {
				if !isIn(x, id) {
					all++
				}
			}
			if len(x) > 0 && len(y) > 0 && len(x)/2+1+len(y)/2+1 > all {
				return true
			}
		}
	}
	return false
}

func isIn(list []uint64, id uint64) bool {
	for _, m := range list {
		if m == id {
			return true
		}
	}
	return false
}

// oneChange checks a change that a node writes: the change before it in the log is committed.
func (o *oracle) oneChange(n *node, index uint64) {
	if last := len(n.changes) - 1; last >= 0 && n.changes[last] > uint64(len(o.ghost)) {
		violate(property.OneChange, "node %d has a change of members at entry %d and another one at entry %d, and %d entries are committed", n.id, n.changes[last], index, len(o.ghost))
	}
	n.changes = append(n.changes, index)
}

// before returns the indexes below one; what is at it and behind it is replaced.
func before(indexes []uint64, index uint64) []uint64 {
	for len(indexes) > 0 && indexes[len(indexes)-1] >= index {
		indexes = indexes[:len(indexes)-1]
	}
	return indexes
}
