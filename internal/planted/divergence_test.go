package planted_test

// Bugs about members that differ: alarms that are false, and differences that are not told.
var divergenceBugs = []bug{
	{name: "results_unwatched", what: "results are compared only if the machine asks for it", in: ".", found: "TestDifferentResultsAreNoticed", edits: []edit{{"adapter.go",
		`	if !m.keeps {
		a.summer.plan`, `	if false {
		a.summer.plan`}}},
	{name: "mix_forms", what: "a leader compares the results of members that sum them up in other ways", in: "sim", found: "TestDivergence", args: "-divergences 2", says: "nothing is wrong", edits: []edit{{"host/internal/divergence/divergence.go",
		`m.version == version && m.form == form`, `m.version == version && m.form != form+"-"`}}},
	{name: "results_of_another_program", what: "the sum of results goes on from that in a snapshot, which another program may have made", in: "sim", found: "TestDivergence", args: "-divergences 2", says: "nothing is wrong", edits: []edit{{"host/internal/divergence/sums.go",
		`f.Commands, f.Results, false`, `f.Commands, f.Results, f.Whole`}}},
	{name: "follow_references", what: "of each result the contents of a slice are summed up, which a later command of the batch may change", in: ".", found: "TestResultSums", edits: []edit{{"resultsum.go",
		`p.kind == summedSlice && !whole:`, `p.kind == summedSlice && false:`}}},
	{name: "kept_where_awaited", what: "a result that sessions keep is built on one member only, so members keep others, and a copy gets none", in: "sim", found: "TestDivergence", args: "-divergences 2", says: "nothing is wrong", also: []judge{{in: ".", test: "TestAnswersAreBuiltWhereSomeoneWaits"}}, edits: []edit{{"host/internal/apply/commands.go",
		`s.Options.KeepResults || s.batch[i].Caller != nil`, `s.batch[i].Caller != nil`}}},
	{name: "never_awaited", what: "a machine is not told that a caller waits for a result", in: "sim", found: "TestExactlyOnce", says: "Awaited is false", also: []judge{{in: ".", test: "TestAnswersAreBuiltWhereSomeoneWaits"}}, edits: []edit{{"host/internal/apply/commands.go",
		`s.Options.KeepResults || s.batch[i].Caller != nil`, `s.Options.KeepResults`}}},
	{name: "awaited_is_compared", what: "members compare what only the member of the caller has built", in: ".", found: "TestAnswersAreBuiltWhereSomeoneWaits", edits: []edit{{"resultsum.go",
		`|| f.Tag.Get("millrace") == "awaited" {`, `{`}}},
	{name: "sink_of_each", what: "a sink is called for each outcome of a batch", in: ".", found: "TestSinkGetsABatchInOneCall", edits: []edit{{"internal/completion/delivery.go",
		`	d.to.Add(d.outcomes...)
`, `	for i := range d.outcomes {
		d.to.Add(d.outcomes[i])
	}
`}}},
	{name: "leader_keeps_it", what: "a leader does not tell the members that they differ", in: "host/internal/divergence", found: "TestLeaderTellsWhatItHasFound", also: []judge{{in: "sim", test: "TestDivergence", args: "-divergences 1"}}, edits: []edit{{"host/internal/divergence/finding.go",
		`	if finding.Index > 0 || told {`, `	if told {`}}},
	{name: "told_for_ever", what: "a member that believes that others differ does not hear that it is over", in: "host/internal/divergence", found: "TestLeaderTellsWhatItHasFound", edits: []edit{{"host/internal/divergence/finding.go",
		`	if finding.Index > 0 || told {`, `	if finding.Index > 0 {`}}},
	{name: "uncompared_unsaid", what: "Explain does not say that members sum up results in other forms, and are not compared", in: "host", found: "TestMembersThatAreNotCompared", also: []judge{{in: "sim", test: "TestDivergence", args: "-divergences 1", says: "no leader has warned"}}, edits: []edit{{"host/internal/examination/examine.go",
		`	(*examination).findUncompared,
`, ``}}},
	{name: "other_version_is_uncompared", what: "Explain warns of members that are not compared as they have other versions", in: "host/internal/divergence", found: "TestUncomparedMembersAreNamed", also: []judge{{in: "sim", test: "TestDivergence", args: "-divergences 3", says: "all sum up the same"}}, edits: []edit{{"host/internal/divergence/gaps.go",
		`r.Version == d.machine.Version && r.Watch`, `r.Watch`}}},
	{name: "uncompared_for_ever", what: "Explain warns of what a member summed up before it was started again", in: "host", found: "TestMembersThatAreNotCompared", edits: []edit{{"host/internal/divergence/gaps.go",
		` || d.wiring.Life(u.Member) != u.life`, ``}}},
}
