package raft

// The transitions between roles, each of which draws a new election timeout. Only these functions assign the
// role, and only they and the constructor (newRaft) assign the term. The vote is also assigned when it is
// granted (candidate.go), and the leader when it is heard (follower.go) or forgotten (forget.go). An
// application may replace the election timeout (RawNode.SetElectionTimeout).

// becomeFollower follows lead (None if no leader is known) in a term no lower than the current one.
func (r *raft) becomeFollower(term, lead uint64) {
	r.enter(StateFollower, term)
	r.lead = lead
}

// becomePreCandidate begins a round of pre-votes. It changes neither term nor vote, so the request disturbs
// no other node.
func (r *raft) becomePreCandidate() {
	invariant(r.role != StateLeader, "a leader does not campaign")
	r.enter(StatePreCandidate, r.term)
	r.candidate = newCandidate()
}

// becomeCandidate starts an election in the next term, with this node's vote for itself (thesis §3.4).
func (r *raft) becomeCandidate() {
	invariant(r.role != StateLeader, "a leader does not campaign")
	r.enter(StateCandidate, r.term+1)
	r.vote = r.id
	r.candidate = newCandidate()
	r.infof("%d campaigns in term %d", r.id, r.term)
}

// becomeLeader begins to lead: every follower is probed, and an entry of the new term is appended at once.
// Only with such an entry do the entries before it commit (thesis §3.6.2, §6.4).
func (r *raft) becomeLeader() {
	invariant(r.role == StateCandidate, "only a candidate becomes leader, this is %v", r.role)
	r.enter(StateLeader, r.term)
	r.lead = r.id
	r.leader = newLeader(r)
	if r.log.applyRanges {
		r.log.unstable.keepSizes = r.leader.termStart
	}
	r.infof("%d leads term %d, starting with entry %d", r.id, r.term, r.leader.termStart)
	r.appendOwn(noop())
}

// enter is the common part of every transition.
func (r *raft) enter(role StateType, term uint64) {
	invariant(term >= r.term, "terms never go back: %d to %d", r.term, term)
	if r.leader != nil {
		r.dropReads()
		r.infof("%d no longer leads term %d; it is in term %d", r.id, r.term, term)
	}
	if term != r.term {
		r.term, r.vote = term, None
		r.authority.epoch = 0
	}
	r.role, r.lead, r.candidate, r.leader = role, None, nil, nil
	r.log.unstable.keepSizes = noLimit
	r.electionElapsed = 0
	r.electionTimeout = r.cfg.electionTicks + r.random.intn(r.cfg.electionTicks)
}
