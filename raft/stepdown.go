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
// or its state machine is too slow to lead. The node follows no leader and votes for others at once. It does
// not campaign by itself before quiet ticks and an election timeout have passed, or until it enters a new
// term. So a healthy node is elected, if there is one. Campaign, and a leader that hands over to this node,
// may make it campaign earlier. Reads that wait for a confirmation are dropped (Ready.DroppedReads).
// Proposals that are not committed may still commit.
//
// A transfer (TransferLeader) costs no election timeout: prefer it when a member is level. On any other role
// StepDown does nothing. The quiet time is at most ten months of ticks of 25 ms.
func (rn *RawNode) StepDown(quiet int) {
	if rn.Err() != nil {
		return
	}
	rn.raft.stepDown(quiet)
	rn.raft.checkCursors()
}
