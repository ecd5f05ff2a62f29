package core

import (
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/sim/property"
)

// Terms and commit indexes of a life do not go back, and applied <= committed <= last (figure 3.1). Checked
// after each input, which is also where the other properties of a node's state are called from.

// moves is called after each input of a node.
func (o *oracle) moves(n *node) {
	if err := n.rn.Err(); err != nil {
		if !n.readFailed {
			violate(property.Failures, "node %d stops: %v", n.id, err)
		}
		return // it ends when its input has been handled (moved)
	}
	st := n.rn.BasicStatus()
	if st.Term < n.term || st.Commit < n.commit {
		violate(property.Cursors, "node %d goes back from term %d, commit %d to term %d, commit %d", n.id, n.term, n.commit, st.Term, st.Commit)
	}
	if st.Commit > st.LastIndex || st.Applied > st.Commit {
		violate(property.Cursors, "node %d has applied %d and committed %d of %d entries", n.id, st.Applied, st.Commit, st.LastIndex)
	}
	leads := st.RaftState == raft.StateLeader
	if leads && (!n.leads || st.Term != n.term) {
		o.leads(n, st.Term)
	}
	if leads {
		o.appendsOnly(n, st.Term, st.LastIndex)
		o.bounded(n, &st)
	}
	before := n.commit
	n.term, n.commit, n.last, n.leads, n.role, n.transferee = st.Term, st.Commit, st.LastIndex, leads, st.RaftState, st.LeadTransferee
	if st.Commit > before {
		o.commits(n, before)
	}
}
