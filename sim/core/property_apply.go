package core

import (
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
)

// Every member applies the same entries, each one once, in order, and only what is committed (thesis §3.6.3):
// the sum over what a state machine has applied is that of the first one that applied so much. A state
// machine that survives a crash applies nothing that is not durable on its member. Checked at each entry that
// is applied.

// applies checks an entry that a state machine is to apply; n.sum has it already.
func (o *oracle) applies(n *node, e *raftpb.Entry) {
	if e.Index != n.applied+1 {
		violate(property.StateMachineSafety, "node %d applies entry %d after %d", n.id, e.Index, n.applied)
	}
	if e.Index > uint64(len(o.ghost)) {
		violate(property.StateMachineSafety, "node %d applies entry %v, which is not committed", n.id, e.ID())
		return
	}
	g := &o.ghost[e.Index-1]
	if g.term != e.Term || g.sum != sumOf(e) {
		violate(property.StateMachineSafety, "node %d applies entry %v, and another one, of term %d, was committed", n.id, e.ID(), g.term)
	}
	if g.state == 0 {
		g.state = n.sum
	} else if g.state != n.sum {
		violate(property.StateMachineSafety, "node %d has another state than others after entry %d", n.id, e.Index)
	}
	o.begun = o.begun || e.Type == raftpb.EntryNormal && len(e.Data) > 0
	if d := &n.disk.durable; !n.settings.volatile || e.Type != raftpb.EntryNormal {
		if t, known := d.term(e.Index); !known && e.Index > d.base.Index || known && t != e.Term {
			violate(property.StateMachineSafety, "node %d applies entry %v, which is not durable on it", n.id, e.ID())
		}
	}
}
