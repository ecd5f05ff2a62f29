package core

import (
	"github.com/millrace/millrace/sim/property"
)

// A term has one leader at most, over all lives (thesis §3.4): a node that leads one term in two lives has
// forgotten its vote. A leader has everything that was committed in earlier terms (§3.6.3). It never shortens
// its log (§3.5). Checked after each input of a node that leads.
//
// Completeness looks at the last entry that was committed before the leader's term: by log matching it stands
// for those before it.

// leads checks a new leader.
func (o *oracle) leads(n *node, term uint64) {
	me := leadTerm{n.id, n.life}
	if other, led := o.leaders[term]; led && other != me {
		violate(property.ElectionSafety, "term %d is led by node %d in its life %d and by node %d in its life %d", term, other.node, other.life, n.id, n.life)
	}
	o.leaders[term] = me
	if o.w.trace != nil {
		o.w.trace("%d leads term %d", n.id, term)
	}
	for i := uint64(len(o.ghost)); i > 0; i-- {
		if g := &o.ghost[i-1]; g.by < term {
			if have, ok := n.rn.EntryTerm(i); ok && have != g.term || !ok && i > n.disk.live.base.Index {
				violate(property.LeaderCompleteness, "node %d leads term %d without entry %d of term %d, which was committed in term %d (it has term %d there)", n.id, term, i, g.term, g.by, have)
			}
			return
		}
	}
}

// appendsOnly checks a leader that goes on leading.
func (o *oracle) appendsOnly(n *node, term, last uint64) {
	if n.leads && n.term == term && last < n.last {
		violate(property.LeaderAppendOnly, "node %d leads term %d, and its log ends at entry %d after it ended at %d", n.id, term, last, n.last)
	}
}
