package planted_test

// readBugs are bugs in reads and leases of the core.
var readBugs = []bug{
	{name: "reads_without_quorum", what: "a leader answers reads without asking a quorum whether it still leads", in: "raft", found: "TestReadNeedsBothHalves", edits: []edit{{"raft/read.go",
		`confirmed := min(uint64(r.conf.Voters.CommittedIndex(echoes{r})), s.lastPosition())`, `confirmed := s.lastPosition()`}}},
	{name: "read_at_applied", what: "a read gets the applied index of the leader, not its commit index", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/read.go",
		`waitingRead{q, r.log.committed, r.leader.ticks}`, `waitingRead{q, r.log.applied, r.leader.ticks}`}}},
	{name: "read_before_own_commit", what: "a leader answers reads before it has committed an entry of its term", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/read.go",
		`	case r.log.committed < r.leader.termStart:
		r.leader`, `	case false:
		r.leader`}}},
	{name: "echoes_of_earlier_terms", what: "the answer to a heartbeat of an earlier term confirms reads", in: "raft", found: "TestEchoOfAnEarlierTermConfirmsNothing", edits: []edit{{"raft/gate.go",
		`	case m.Term < r.term:
		if m.Type`, `	case m.Term < r.term && m.Type != raftpb.MsgHeartbeatResp:
		if m.Type`}}},
	{name: "later_read_confirmed", what: "an answer confirms the reads that were asked after it, too", in: "raft", found: "TestReadsOfEqualContext", edits: []edit{{"raft/read.go",
		`	s.echoed[from] = position
`, `	s.echoed[from] = s.lastPosition()
`}}},
	{name: "lease_from_echo", what: "a lease of the core begins when its round was answered", in: "raft", found: "TestLeaseBeginsWhenItWasAskedFor", edits: []edit{{"raft/read.go",
		`r.renewLease(read.askedAt)`, `r.renewLease(r.leader.ticks)`}}},
	{name: "lease_too_long", what: "a lease of the core lasts for two election timeouts", in: "raft", found: "TestLeaseEndsInQuietTime", edits: []edit{{"raft/lease.go",
		`r.cfg.electionTicks*3/4 - 1`, `r.cfg.electionTicks * 2`}}},
	{name: "lease_after_transfer", what: "a leader that has ordered an election keeps its lease", in: "raft", found: "TestStories", edits: []edit{{"raft/lease.go",
		`r.cfg.leaseReads && !l.orderedElection && !r.transferring() &&`, `r.cfg.leaseReads &&`}}},
	{name: "dropped_reads_silent", what: "a leader that is deposed does not say that reads are dropped", in: "raft", found: "TestReadsAreBounded", edits: []edit{{"raft/term.go",
		`		r.dropReads()
`, ``}}},
}
