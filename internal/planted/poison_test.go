package planted_test

// Bugs about commands that a state machine cannot apply.
var poisonBugs = []bug{
	{name: "codec_not_tried", what: "a command that its codec cannot decode is proposed", in: ".", found: "TestCommandThatDoesNotComeBackIsNotProposed", edits: []edit{{"machine.go",
		`return Machine[C, R]{sm: sm, codec: codec, tries: !isSure(codec)}`, `return Machine[C, R]{sm: sm, codec: codec}`}}},
	{name: "poison_stops_the_group", what: "a command that the state machine cannot apply stops the group, on every member", in: "host", found: "TestFailureStopsOneGroup", edits: []edit{{"host/apply.go",
		`		q.halt(halted)
		return false
	} else if`, `		q.group.fail(halted)
		return false
	} else if`}}},
	{name: "skip_after_the_effect", what: "a member that has applied a command goes on behind the entry that skips it", in: "host", found: "TestSkipIsTakenByEveryMember", edits: []edit{{"host/skipped.go",
		`|| s.index >= e.Index || slices.Contains(q.passed, s.index) {`, `|| s.index >= e.Index || true {`}}},
	{name: "skip_without_a_halt", what: "a leader skips a command that its machine has applied", in: "host", found: "TestPoisonCommandIsSkipped", edits: []edit{{"host/skipped.go",
		`	if err := g.rejectSkip(s.index); err != nil {`, `	if err := error(nil); err != nil {`}}},
	{name: "suspects_together", what: "after a start the commands of which one has halted the machine are one batch again", in: "host", found: "TestSuspectCommandsAreAppliedOneByOne", edits: []edit{{"host/machinenote.go",
		`q.note.First <= index && index <= q.note.Last`, `false && index > 0`}}},
	{name: "skips_not_read", what: "a member that starts again does not read which commands are skipped", in: "sim", found: "TestDivergence", args: "-divergences 2", says: "poison command", edits: []edit{{"host/groups.go",
		`	g.openSkips(committed)
`, `	_ = committed
`}}},
	{name: "suspect_state_goes_on", what: "a machine that is made again from a snapshot keeps the state in which it has halted", in: "sim", found: "TestDivergence", args: "-divergences 6", says: "poison", edits: []edit{{"host/rebuild.go",
		`	err = g.restoreFrom(context.Background(), p, r)
`, `	_ = context.Background()
`}}},
	{name: "halted_machine_holds_the_core", what: "a core learns only from its machine what is applied, so members with halted machines cannot campaign over a membership change", in: "host", found: "TestHaltedMachineDoesNotHoldTheCore", edits: []edit{{"host/halted.go",
		`	if len(answers) > 0 {
		q.group.inbox.putAnswers(answers)`, `	if len(answers) > 1<<30 {
		q.group.inbox.putAnswers(answers)`}}},
	{name: "made_again_before_its_clients", what: "a halted machine is made again before the clients of the batch that failed are told", in: "sim", found: "TestPoison", args: "-poisonings 30", says: "calls at host", edits: []edit{{"host/halted.go",
		`	if q.halting.seen.Load() != q.halting.now.Load() {`, `	if false {`}}},
	{name: "snapshot_leaves_the_halt", what: "a machine that is halted stays so although a snapshot behind the command was installed", in: "host", found: "TestHaltedMachineInstalls", edits: []edit{{"host/halted.go",
		`			q.resume()
			return true
		}
		return false`, `			return true
		}
		return false`}}},
	{name: "skip_of_any_command", what: "a leader skips a command at which its machine is not halted", in: "sim", found: "TestPoison", args: "-poisonings 30", says: "skips command", edits: []edit{{"host/skipped.go",
		`	if err := g.rejectSkip(s.index); err != nil {
		return err`, `	if err := g.rejectSkip(s.index); err != nil && err == nil {
		return err`}}},
}
