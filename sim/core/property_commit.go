package core

import (
	"github.com/millrace/millrace/sim/property"
)

// What is committed stays, and is the same for all (thesis §3.6.3): the first leader that commits an entry
// writes it down in the ghost, and nothing else is ever committed at its index. At that moment the entry is
// on the disks of a quorum, in what a power cut leaves and not in memory (§3.8, §10.2.1); in a joint
// configuration on those of two. Checked at each move of a commit index.

// commits checks that the entries behind before are committed.
func (o *oracle) commits(n *node, before uint64) {
	for i := before + 1; i <= n.commit; i++ {
		term, ok := n.rn.EntryTerm(i)
		if i <= uint64(len(o.ghost)) {
			if g := &o.ghost[i-1]; ok && g.term != term {
				violate(property.CommittedStays, "node %d takes entry %d of term %d for committed, and the one of term %d was", n.id, i, term, g.term)
			}
			continue
		}
		if !ok || !n.leads {
			violate(property.CommittedStays, "node %d knows that entry %d is committed before a leader does", n.id, i)
		}
		e := o.find(i, term)
		if e == nil {
			violate(property.CommittedStays, "node %d commits entry %d of term %d, which no storage has written", n.id, i, term)
			e = &seen{}
		}
		o.ghost = append(o.ghost, ghost{term: term, sum: e.sum, by: n.term})
		if i == n.commit {
			o.durable(n, i, term)
		}
	}
}

// durable checks that an entry, and so all before it, is on the disks of a majority, or of two majorities.
func (o *oracle) durable(n *node, i, term uint64) {
	majority := func(voters []uint64) {
		have := 0
		for _, id := range voters {
			d := &o.w.nodes[id-1].disk.durable
			// One that has forgotten what it acknowledged has no authority before it has it again.
			if t, known := d.term(i); known && t == term || i < d.base.Index || o.w.nodes[id-1].forgot {
				have++
			}
		}
		if len(voters) > 0 && have <= len(voters)/2 {
			violate(property.CommittedIsDurable, "node %d commits entry %d of term %d, which is durable on %d of voters %v", n.id, i, term, have, voters)
		}
	}
	majority(n.conf.Voters)
	majority(n.conf.VotersOutgoing)
}
