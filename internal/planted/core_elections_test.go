package planted_test

// electionBugs are bugs in elections: votes, terms, logs that are compared.
var electionBugs = []bug{
	{name: "votes_twice", what: "a member votes for every candidate of a term whose log is long enough", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/candidate.go",
		`free := r.vote == from ||`, `free := true || r.vote == from ||`}}},
	{name: "vote_ignores_log", what: "a member votes for a candidate whose log is shorter than its own", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/candidate.go",
		`!r.log.isUpToDate(v.last) || r.authority.without`, `r.authority.without`}}},
	{name: "vote_by_length_only", what: "logs are compared by their length, not by the term of their last entry", in: "raft", found: "TestStories", edits: []edit{{"raft/log.go",
		`theirs.Term > ours.Term || (theirs.Term == ours.Term && theirs.Index >= ours.Index)`, `theirs.Index >= ours.Index`}}},
	{name: "vote_by_term_only", what: "logs are compared by the term of their last entry, not by their length", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/log.go",
		`theirs.Term > ours.Term || (theirs.Term == ours.Term && theirs.Index >= ours.Index)`, `theirs.Term >= ours.Term`}}},
	{name: "vote_not_recorded", what: "a member does not remember the vote that it gives", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/candidate.go",
		`		r.vote = from
`, ``}}},
	{name: "own_vote_not_recorded", what: "a candidate does not remember that it voted for itself", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/term.go",
		`	r.vote = r.id
	r.candidate`, `	r.candidate`}}},
	{name: "vote_not_saved", what: "a vote that does not come with a new term is not written", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/ready.go",
		`		rd.HardState = hard
`, `		if hard.Term != rn.prevHard.Term || hard.Commit != rn.prevHard.Commit {
			rd.HardState = hard
		}
`}}},
	{name: "vote_not_synced", what: "in synchronous mode a vote that does not come with a new term needs no sync", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/ready.go",
		`entries != 0 || st.Term != prev.Term || st.Vote != prev.Vote`, `entries != 0 || st.Term != prev.Term`}}},
	{name: "vote_before_disk", what: "the answer to a request for a vote leaves before the vote is durable", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/outbox.go",
		`if speaksOfUndurableState(m.Type) {`, `if speaksOfUndurableState(m.Type) && (m.Type != raftpb.MsgVoteResp || m.To == r.id) {`}}},
	{name: "request_before_disk", what: "a candidate asks for votes before its own vote is durable", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/outbox.go",
		`if speaksOfUndurableState(m.Type) {`, `if speaksOfUndurableState(m.Type) && m.Type != raftpb.MsgVote {`}}},
	{name: "late_prevotes_count", what: "late answers to a pre-vote count as votes", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/candidate.go",
		`(r.role == StateCandidate && !pre)`, `r.role == StateCandidate`}}},
	{name: "votes_of_earlier_terms_count", what: "votes that were given in an earlier term count", in: "raft", found: "TestStories", edits: []edit{{"raft/gate.go",
		`	case m.Term < r.term:
		if m.Type`, `	case m.Term < r.term && m.Type != raftpb.MsgVoteResp:
		if m.Type`}}},
	{name: "duplicate_votes_count", what: "a vote that arrives twice counts twice", in: "raft", found: "TestAVoteCountsOnce", edits: []edit{{"raft/candidate.go",
		`	if _, voted := r.candidate.votes[from]; !voted {
		r.candidate.votes[from] = granted
	}`, `	for _, id := range append([]uint64{from}, r.conf.Members()...) {
		if _, voted := r.candidate.votes[id]; !voted {
			r.candidate.votes[id] = granted
			break
		}
	}`}}},
	{name: "half_elects", what: "half of the voters elect a leader", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/quorum/quorum.go",
		`need := Size(len(c))`, `need := (len(c) + 1) / 2`}}},
	{name: "one_vote_elects", what: "one vote elects a leader", in: "sim/core", found: "TestSeeds", args: "-seeds 300", edits: []edit{{"raft/quorum/quorum.go",
		`need := Size(len(c))`, `need := min(len(c), 1)`}}},
	{name: "new_half_elects", what: "in a joint configuration the new voters elect a leader alone", in: "raft", found: "TestStories", edits: []edit{{"raft/quorum/quorum.go",
		`case a == VoteWon && b == VoteWon:`, `case a == VoteWon:`}}},
	{name: "own_prevote_refused", what: "a candidate refuses its own pre-vote", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/candidate.go",
		`r.send(raftpb.Message{Type: voteReplyType(request), To: id, Term: term})`, `r.send(raftpb.Message{Type: voteReplyType(request), To: id, Term: term, Reject: request == raftpb.MsgPreVote})`}}},
	{name: "prevote_refusal_ignored", what: "a node does not enter the higher term that comes with the refusal of a pre-vote", in: "sim/core", found: "TestSeeds", args: "-first 550 -seeds 100", edits: []edit{{"raft/gate.go",
		`		return m.Reject
	}
	return !r.ignoresElection`, `		return false
	}
	return !r.ignoresElection`}}},
	{name: "timeouts_not_random", what: "all nodes have the same election timeout", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/term.go",
		`r.cfg.electionTicks + r.random.intn(r.cfg.electionTicks)`, `r.cfg.electionTicks`}}},
	{name: "terms_skipped", what: "a candidate skips 63 terms", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/term.go",
		`r.enter(StateCandidate, r.term+1)`, `r.enter(StateCandidate, r.term+64)`}}},
	{name: "lead_behind_snapshot", what: "a node campaigns whose log is about to be replaced by a snapshot", in: "raft", found: "TestStories", edits: []edit{{"raft/raft.go",
		`r.conf.IsVoter(r.id) && r.log.unstable.snapshot == nil &&`, `r.conf.IsVoter(r.id) &&`}}},
	{name: "second_leader_followed", what: "a follower follows a second leader of its term", in: "raft", found: "TestPeerErrors", edits: []edit{{"raft/follower.go",
		`case r.lead != None && r.lead != from:`, `case false:`}}},
	{name: "vote_kept_in_new_term", what: "a vote counts in the next term, too", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/term.go",
		`r.term, r.vote = term, None`, `r.term = term`}}},
	{name: "stale_candidate_unanswered", what: "a candidate or leader of an earlier term does not learn of the later one", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/gate.go",
		`		r.answerStale(m)
`, ``}}},
	{name: "far_behind_refusal_unheard", what: "the commit index in the refusal of a pre-vote of an earlier term is not heard", in: "raft", found: "TestRefusalOfAPreVoteFromAnEarlierTerm", edits: []edit{{"raft/gate.go",
		`		if m.Type == raftpb.MsgPreVoteResp && m.Reject {`, `		if false {`}}},
	{name: "learn_unmatched", what: "a commit index from a refused vote is believed although the log does not match", in: "raft", found: "TestCommitIndexOfARefusalIsOfOneEntry", edits: []edit{{"raft/candidate.go",
		`id.Index > r.log.committed && r.log.matches(id)`, `id.Index > r.log.committed && id.Index <= r.log.lastIndex()`}}},
	{name: "promise_ends_with_crash", what: "a member that promised not to vote forgets it in a crash", in: "raft", found: "TestStories", edits: []edit{{"raft/raft.go",
		`	if hs.Term > 0 {
		r.promise()`, `	if false {
		r.promise()`}}},
	{name: "promise_not_kept", what: "a member votes although it promised its leader not to", in: "raft", found: "TestPromiseOutlivesTheTerm", edits: []edit{{"raft/follower.go",
		`return r.promisedTicks > 0 || (r.cfg`, `return (r.cfg`}, {"raft/candidate.go",
		`if r.promisedTicks > 0 && !v.ordered {`, `if false {`}}},
}
