package planted_test

// blockBugs are bugs in who holds the memory of a command, and for how long.
var blockBugs = []bug{
	{name: "loan_ends_before_apply", what: "the apply lane releases the memory of commands before the machine is called", in: "sim", found: "TestSeeds", args: "-seeds 20 -failures 1", also: []judge{{in: "host/internal/apply", test: "TestLoansEndWithApply"}}, edits: []edit{{"host/internal/apply/round.go",
		`		if err == nil {
			err = q.apply(entries)
		}
		size :=`, `		q.loan.Return()
		if err == nil {
			err = q.apply(entries)
		}
		size :=`}}},
	{name: "loan_never_ends", what: "the apply lane never releases the memory of commands", in: "host/internal/apply", found: "TestLoansEndWithApply", edits: []edit{{"host/internal/apply/round.go",
		`	q.loan.Return()
`, ``}}},
	{name: "in_place_says_it_copies", what: "a codec that keeps the bytes of a command says that it copies them", in: ".", found: "TestCommandsMayBeKept", edits: []edit{{"codec.go",
		`func (bytesCodec) DecodeCopies() bool { return true }
`, `func (bytesCodec) DecodeCopies() bool { return true }

func (inPlaceCodec) DecodeCopies() bool { return true }
`}}},
	{name: "keepers_borrow", what: "a machine that may keep its commands borrows them", in: "host/internal/apply", found: "TestLoansEndWithApply", edits: []edit{{"host/internal/apply/queue.go",
		`borrows = lends && statemachine.Borrows(machine)`, `_ = machine
		borrows = lends`}}},
	{name: "block_twice", what: "a block may be released twice", in: "internal/arena", found: "TestLastReleaseGivesBack", edits: []edit{{"internal/arena/arena.go",
		`if life, refs := uint32(s>>32), s&refsMask; life != r.life || refs == 0 {`, `if life, refs := uint32(s>>32), s&refsMask; life != r.life && refs == 0 {`}}},
	{name: "kept_is_reused", what: "a block that a reader may have kept is reused", in: "internal/arena", found: "TestNaiveTwin|TestKeptBlocksAreNotReused|TestLoan", edits: []edit{{"internal/arena/arena.go",
		`if next&refsMask == 0 && next&keptBit == 0 {`, `if next&refsMask == 0 {`}}},
}
