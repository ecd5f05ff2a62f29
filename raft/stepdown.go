package raft

// stepDown ends this node's leadership in its term, as a failed check of the quorum does. quiet more ticks
// than the election timeout must pass before it campaigns.
func (r *raft) stepDown(quiet int) {
	if r.role != StateLeader {
		return
	}
	r.becomeFollower(r.term, None)
	r.electionTimeout += min(max(quiet, 0), maxSkippedTicks)
}

// StepDown ends this node's leadership, for an application that knows what the protocol cannot see: its disk
// or its state machine is too slow to lead. The node follows no leader, votes for others at once, and does not
// campaign by itself before quiet ticks and an election timeout have passed, or until it enters a new term.
// So a node that is healthy is elected, if there is one. It may still be made to campaign by Campaign or by a
// leader that hands over to it. Reads that wait for a confirmation are dropped (Ready.ReadStates has no
// answer for them), and proposals that are not committed may still commit.
//
// A transfer (TransferLeader) costs no election timeout: prefer it when a member is level. On any other role
// StepDown does nothing.
func (rn *RawNode) StepDown(quiet int) {
	if rn.Err() != nil {
		return
	}
	rn.raft.stepDown(quiet)
	rn.raft.checkCursors()
}
