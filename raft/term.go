package raft

// This file holds the roles' transitions, and nothing else assigns a role, a term or a timeout.

// becomeFollower follows lead (None: nobody yet) in a term no lower than the present one.
func (r *raft) becomeFollower(term, lead uint64) {
	r.enter(StateFollower, term)
	r.lead = lead
}

// becomePreCandidate asks for pre-votes. It changes neither term nor vote: nobody is disturbed by the question.
func (r *raft) becomePreCandidate() {
	invariant(r.role != StateLeader, "a leader does not campaign")
	r.enter(StatePreCandidate, r.term)
	r.candidate = newCandidate()
}

// becomeCandidate starts an election in the next term with the own vote for itself (thesis §3.4).
func (r *raft) becomeCandidate() {
	invariant(r.role != StateLeader, "a leader does not campaign")
	r.enter(StateCandidate, r.term+1)
	r.vote = r.id
	r.candidate = newCandidate()
	r.infof("%d campaigns in term %d", r.id, r.term)
}

// becomeLeader takes office: everyone is probed, and an entry of the new term is appended at once, since only with one
// of those do the entries before it commit (thesis §3.6.2, §6.4).
func (r *raft) becomeLeader() {
	invariant(r.role == StateCandidate, "only a candidate becomes leader, this is %v", r.role)
	r.enter(StateLeader, r.term)
	r.lead = r.id
	r.leader = newLeader(r)
	r.infof("%d leads term %d, from entry %d on", r.id, r.term, r.leader.termStart)
	r.appendOwn(noop())
}

// enter is the common part of every transition.
func (r *raft) enter(role StateType, term uint64) {
	invariant(term >= r.term, "terms never go back: %d to %d", r.term, term)
	if r.leader != nil {
		r.dropReads()
		r.infof("%d leads term %d no longer; it is in term %d", r.id, r.term, term)
	}
	if term != r.term {
		r.term, r.vote = term, None
	}
	r.role, r.lead, r.candidate, r.leader = role, None, nil, nil
	r.electionElapsed = 0
	r.electionTimeout = r.cfg.electionTicks + r.random.intn(r.cfg.electionTicks)
}

// tick moves the node's time by one.
func (r *raft) tick() {
	r.promisedTicks = max(r.promisedTicks-1, 0)
	if r.role == StateLeader {
		r.tickLeader()
		return
	}
	r.electionElapsed++
	if r.electionElapsed >= r.electionTimeout && r.promotable() {
		r.electionElapsed = 0
		r.campaign()
	}
}

// tickQuiesced moves the time of a node that is at rest.
func (r *raft) tickQuiesced() {
	r.promisedTicks = max(r.promisedTicks-1, 0)
	r.electionElapsed++
}

// hearsLeader reports whether the node has heard a leader within the minimum election timeout. While it does, it takes no
// part in elections, so that a server which cannot hear the leader cannot depose it (thesis §4.2.3).
func (r *raft) hearsLeader() bool {
	return r.promisedTicks > 0 || (r.cfg.checkQuorum && r.lead != None && r.electionElapsed < r.cfg.electionTicks)
}
