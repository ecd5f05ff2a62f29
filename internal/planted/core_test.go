package planted_test

// coreBugs are bugs in the core, package raft.
var coreBugs = []bug{
	{name: "vote_without_authority", what: "a member without authority votes and campaigns", in: "raft", found: "TestPowerCuts", args: "-seeds 600", also: []judge{{in: "sim", test: "TestSeeds", args: "-mode unsafe-os -seeds 100 -failures 1"}}, edits: []edit{{"raft/candidate.go",
		`!r.log.isUpToDate(v.last) || r.authority.without`, `!r.log.isUpToDate(v.last)`}, {"raft/raft.go",
		`r.log.unstable.snapshot == nil && !r.authority.without`, `r.log.unstable.snapshot == nil`}}},
	{name: "heartbeat_commits", what: "a member without authority takes the commit index of a heartbeat that was sent to its earlier life", in: "sim", found: "TestSeeds", args: "-mode unsafe-os -first 150 -seeds 20 -failures 1", says: "the cluster has not elected a leader, committed and converged", also: []judge{{in: "raft", test: "TestPowerCuts", args: "-seeds 600"}}, edits: []edit{{"raft/follower.go",
		`if r.authority.without && !ours {`, `if r.authority.without && !ours && false {`}}},
	{name: "count_old_terms", what: "a leader counts entries of earlier terms for commit (thesis figure 3.7)", in: "sim", found: "TestSeeds", args: "-seeds 200 -failures 30", says: "new leader ", edits: []edit{{"raft/commit.go",
		`held > r.log.committed && held >= r.leader.termStart`, `held > r.log.committed`}}},
	{name: "regain_unconfirmed", what: "a member has authority again although the others were not asked whether its leader leads", in: "raft", found: "TestAForgottenVoteNeedsAllWhoMayLead", edits: []edit{{"raft/authority.go",
		`pr.Match >= b.target && r.confirmed(id, b)`, `pr.Match >= b.target`}}},
	{name: "regain_by_quorum", what: "a member that may have forgotten a vote has authority again when a quorum follows its leader", in: "raft", found: "TestAForgottenVoteNeedsMoreThanAQuorum", edits: []edit{{"raft/authority.go",
		`if !b.lacksTerms {`, `if true {`}}},
	{name: "count_late_acks", what: "a leader believes an acknowledgement of a member's earlier life, after the member has come without authority", in: "raft", found: "TestPowerCuts", args: "-seeds 600", edits: []edit{{"raft/authority.go",
		`	switch {
	case s.lost &&`, `	switch {
	case !s.lost:
		return true
	case s.lost &&`}}},
	{name: "count_without_authority", what: "the acknowledgements of a member without authority count like others", in: "sim", found: "TestSeeds", args: "-mode unsafe-os -seeds 200 -failures 1", also: []judge{{in: "raft", test: "TestPowerCuts", args: "-seeds 600"}}, edits: []edit{{"raft/authority.go",
		`pr.LoseAuthority(true)`, `pr.LoseAuthority(false)`}, {"raft/authority.go",
		`if a.without {
		flags`, `if a.without && false {
		flags`}}},
	{name: "regain_locally", what: "a member has authority again when it holds what it knows to be committed itself, whatever its leader had committed", in: "raft", found: "TestPowerCuts", args: "-seeds 600", edits: []edit{{"raft/authority.go",
		`if ours && context[17] == 1 {`, `if ours {`}}},
	{name: "believe_far_terms", what: "a node enters any term that one peer names", in: "sim", found: "TestCatchUp", args: "-catch-ups 8", says: "the hosts are not level", also: []judge{{in: "host", test: "TestUnsettlingLies"}}, edits: []edit{{"raft/farterm.go",
		`case m.Term <= most:`, `case true:`}}},
	{name: "far_terms_ignored", what: "a node does not come to a far term that one honest peer names", in: "raft", found: "TestFarTermOfOneHonestPeer", edits: []edit{{"raft/farterm.go",
		`r.term > 0 && r.term < step`, `false && r.term < step`}}},
	{name: "jumps_unbounded", what: "one peer may raise the term by a jump with each message", in: "raft", found: "TestOnePeerRaisesTermsSlowly", edits: []edit{{"raft/farterm.go",
		`	if r.window.ticks == 0 {`, `	if true {`}}},
	{name: "first_term_believed_at_once", what: "a node without a term believes the first peer that names a far one", in: "raft", found: "TestFirstTermThatIsFar", edits: []edit{{"raft/farterm.go",
		`m.Term <= maxFirstTerm && r.far.from == m.From && r.far.lasts >= r.farTicks()`, `m.Term <= maxFirstTerm`}}},
	{name: "pulse_reads", what: "the answer to a pulse confirms the reads that wait", in: "raft", found: "TestPulsesConfirmNoRead", edits: []edit{{"raft/pulse.go",
		`	return rn.Step(m)`, `	m.Context = rn.raft.leader.position()
	return rn.Step(m)`}}},
}
