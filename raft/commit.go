package raft

// advanceCommit moves the commit index to the highest entry that a quorum holds durably, and reports whether
// it moved. The leader's own disk counts like any other. Only entries of the leader's own term are counted;
// earlier entries become committed with them (thesis §3.6.2, figure 3.7: an entry of an old term on a
// majority may still be overwritten).
func (r *raft) advanceCommit() bool {
	held, more := r.committable()
	if more {
		r.log.commitTo(held)
	}
	return more
}

// committable returns the highest entry that a quorum holds durably, and whether the commit index may move to
// it.
func (r *raft) committable() (held uint64, more bool) {
	held = uint64(r.leader.voters.CommittedIndex(r.leader.members))
	return held, held > r.log.committed && held >= r.leader.termStart
}

// ownDiskCommits reports whether the commit index would move if everything were durable here.
func (r *raft) ownDiskCommits() (commits bool) {
	own := r.leader.members.Get(r.id)
	if own == nil {
		return false
	}
	durable := own.Match
	own.Match = r.log.lastIndex()
	_, commits = r.committable()
	own.Match = durable
	return commits
}
