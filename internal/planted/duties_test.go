package planted_test

// dutyBugs are duties of a group that are not wanted for one of their inputs.
var dutyBugs = []bug{
	{name: "install_not_wanted", what: "a snapshot that was received is not installed, because no turn calls the duty", in: "sim", found: "TestEveryDuty", edits: []edit{{"host/snapshots.go",
		`	(*Group)(g).want(dutyInstall)
`, ``}}},
	{name: "reads_not_wanted", what: "a read begins, and no turn asks a question for it", in: "sim", found: "TestEveryDuty", edits: []edit{{"host/read.go",
		`	(*Group)(w).want(dutyReads)
`, ``}}},
	{name: "halted_not_wanted", what: "a machine halts, and no turn answers its clients or lets it be made again", in: "host", found: "TestRebuildLeavesNothingOut", edits: []edit{{"host/machine.go",
		`	g.Want()
	(*Group)(g).wake()`, `	(*Group)(g).wake()`}}},
	{name: "questions_not_wanted", what: "a member does not answer what it has applied, so a leader with a stuck machine keeps the leadership", in: "host", found: "TestMemberSaysWhatItHasApplied", edits: []edit{{"host/duties.go",
		`	if len(in.questions) > 0 {`, `	if false {`}}},
	{name: "plan_not_wanted", what: "a request for a plan waits until something else concerns the members", in: "host", found: "TestMembersChange", edits: []edit{{"host/execute.go",
		`		g.want(dutyPlan)
`, ``}, {"host/plan.go",
		`		g.want(dutyPlan)
`, ``}}},
	{name: "tick_not_wanted", what: "duties that look once in a tick look at changes of the role only, so a stalled disk is not seen", in: "sim", found: "TestGrayFailures", edits: []edit{{"host/turn.go",
		`		g.work.wanted.Want(duties.On(turn.Tick))
`, ``}}},
}
