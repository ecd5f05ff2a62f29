package planted_test

// Bugs about members that differ: alarms that are false, and differences that are not told.
var divergenceBugs = []bug{
	{name: "results_unwatched", what: "results are compared only if the machine asks for it", in: ".", found: "TestDifferentResultsAreNoticed", edits: []edit{{"machine.go",
		`	if !m.keeps {
		a.summer.plan`, `	if false {
		a.summer.plan`}}},
	{name: "mix_forms", what: "a leader compares the results of members that sum them up in other ways", in: "sim", found: "TestDivergence", args: "-divergences 2", says: "nothing is wrong", edits: []edit{{"host/internal/divergence/divergence.go",
		`m.version == version && m.form == form`, `m.version == version && m.form != form+1`}}},
	{name: "results_of_another_program", what: "the sum of results goes on from that in a snapshot, which another program may have made", in: "sim", found: "TestDivergence", args: "-divergences 2", says: "nothing is wrong", edits: []edit{{"host/internal/divergence/sums.go",
		`f.Commands, f.Results, false`, `f.Commands, f.Results, f.Whole`}}},
	{name: "follow_references", what: "of each result the contents of a slice are summed up, which a later command of the batch may change", in: ".", found: "TestResultSums", edits: []edit{{"resultsum.go",
		`p.kind == summedSlice && !whole:`, `p.kind == summedSlice && false:`}}},
	{name: "leader_keeps_it", what: "a leader does not tell the members that they differ", in: "host/internal/divergence", found: "TestLeaderTellsWhatItHasFound", also: []judge{{in: "sim", test: "TestDivergence", args: "-divergences 1"}}, edits: []edit{{"host/internal/divergence/finding.go",
		`	if finding.Index > 0 || told {`, `	if told {`}}},
	{name: "told_for_ever", what: "a member that believes that others differ does not hear that it is over", in: "host/internal/divergence", found: "TestLeaderTellsWhatItHasFound", edits: []edit{{"host/internal/divergence/finding.go",
		`	if finding.Index > 0 || told {`, `	if finding.Index > 0 {`}}},
}
