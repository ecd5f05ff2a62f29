package raft

import "github.com/millrace/millrace/internal/planted"

// advanceCommit moves the commit index to the highest entry that a quorum holds durably, and reports whether
// it moved. The leader's own disk counts like any other. Only entries of the leader's own term are counted;
// earlier entries become committed with them (thesis §3.6.2, figure 3.7: an entry of an old term on a
// majority may still be overwritten).
func (r *raft) advanceCommit() bool {
	held := uint64(r.leader.voters.CommittedIndex(r.leader.members))
	if held <= r.log.committed || (held < r.leader.termStart && !planted.CountOldTerms) {
		return false
	}
	r.log.commitTo(held)
	return true
}
