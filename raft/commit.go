package raft

import "github.com/millrace/millrace/internal/planted"

// advanceCommit moves the commit index to the highest entry that a quorum holds durably, the own disk counting like any
// other, and reports whether it moved. Only entries of the leader's own term are counted; earlier ones become committed
// with them (thesis §3.6.2, figure 3.7: an entry of an old term on a majority may still be overwritten).
func (r *raft) advanceCommit() bool {
	held := uint64(r.leader.halves.CommittedIndex(r.leader.peers))
	if held <= r.log.committed || (held < r.leader.termStart && !planted.CountOldTerms) {
		return false
	}
	r.log.commitTo(held)
	return true
}
