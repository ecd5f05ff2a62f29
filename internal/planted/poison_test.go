package planted_test

// Bugs about commands that a state machine cannot apply.
var poisonBugs = []bug{
	{name: "codec_not_tried", what: "a command that its codec cannot decode is proposed", in: ".", found: "TestCommandThatDoesNotComeBackIsNotProposed", edits: []edit{{"machine.go",
		`return Machine[C, R]{sm: sm, codec: codec, tries: !isSure(codec)}`, `return Machine[C, R]{sm: sm, codec: codec}`}}},
}
