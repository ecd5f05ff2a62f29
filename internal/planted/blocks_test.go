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
	{name: "turn_takes_all_blocks", what: "a turn that leaves messages in the inbox leaves them without their blocks", in: "host", found: "TestATurnThatLeavesMessages", edits: []edit{{"host/inbox.go",
		`		b.waiting.blocks = retainHolds(b.waiting.blocks, spare.blocks)
`, ``}}},
	{name: "left_messages_share_a_hold", what: "a turn and the inbox have one hold of a block between them", in: "host", found: "TestATurnThatLeavesMessages", edits: []edit{{"host/inbox.go",
		`b.waiting.blocks = retainHolds(b.waiting.blocks, spare.blocks)`, `b.waiting.blocks = append(b.waiting.blocks, spare.blocks...)`}}},
	{name: "closed_inbox_releases", what: "an inbox that closes releases the blocks of a turn that may be stepping", in: "host", found: "TestATurnThatLeavesMessages", edits: []edit{{"host/inbox.go",
		`b.waiting.blocks[i].block.Keep()`, `b.waiting.blocks[i].block.Release()`}}},
	{name: "core_releases_early", what: "the core's blocks are released before its entries are durable", in: "host", found: "TestBlocksOfTheCore", edits: []edit{{"host/payloads.go",
		`h.list[n].last <= st.Durable ||`, `h.list[n].last <= st.LastIndex ||`}}},
	{name: "core_joins_to_the_older", what: "a block of two messages is released when the entries of the first are durable", in: "host", found: "TestBlocksOfTheCore", edits: []edit{{"host/payloads.go",
		`			same.last = max(same.last, b.last)
`, ``}}},
	{name: "core_releases_twice", what: "the core's blocks are released, and stay in its list", in: "sim", found: "TestSeeds", args: "-seeds 20 -failures 1", also: []judge{{in: "host", test: "TestBlocksOfTheCore"}}, edits: []edit{{"host/payloads.go",
		`		h.list[n].block.Release()
		n++
	}
	h.drop(n)
`, `		h.list[n].block.Release()
		n++
	}
	h.drop(n / 2)
`}}},
	{name: "frame_gets_reused_memory", what: "a message to a peer has entries in a block that is reused", in: "host", found: "TestKeptBlocksOfTheCore", edits: []edit{{"host/payloads.go",
		`		if len(h.list) > 0 && len(messages[i].Entries) > 0 {
			h.keep()
		}
`, `		_ = messages[i]
`}}},
	{name: "lane_holds_nothing", what: "the append lane does not hold the blocks of what is queued", in: "host/internal/appendlane", found: "TestBlocksAreHeldUntilTheWrite", edits: []edit{{"host/internal/appendlane/lane.go",
		`		q.hold(blocks)
`, ``}}},
	{name: "lane_releases_at_the_take", what: "the append lane releases the blocks of what it takes before it is written", in: "host/internal/appendlane", found: "TestBlocksAreHeldUntilTheWrite", edits: []edit{{"host/internal/appendlane/queue.go",
		`	q.writing = arena.RetainAll(q.writing, q.blocks)
`, ``}}},
	{name: "lane_keeps_what_is_written", what: "the append lane does not release the blocks of what is written", in: "host/internal/appendlane", found: "TestBlocksAreHeldUntilTheWrite", edits: []edit{{"host/internal/appendlane/queue.go",
		`	q.joint.reset()
	q.dropBlocks()
	q.client.Appended()
`, `	q.joint.reset()
	q.client.Appended()
`}}},
	{name: "lane_holds_after_discard", what: "the blocks of entries that a full disk refused, and that are discarded, are held for good", in: "host/internal/appendlane", found: "TestBlocksAreHeldUntilTheWrite", edits: []edit{{"host/internal/appendlane/discard.go",
		`	q.dropBlocks()
`, ``}}},
	{name: "late_hand_holds", what: "a turn gives blocks to a lane that has released its group, and nothing releases them", in: "host/internal/appendlane", found: "TestBlocksOfALeavingGroup", edits: []edit{{"host/internal/appendlane/queue.go",
		`	case q.leaving.Load(): // the lane may have released the queue
		arena.KeepAll(arena.RetainAll(nil, blocks))
`, ``}}},
	{name: "cache_forgets_to_retain", what: "the log's cache shows data of a block that it does not hold", in: "wal", found: "TestBlocksThatAreShown|TestCacheTwin", also: []judge{{in: "host/internal/appendlane", test: "TestBlocksAreHeldUntilTheWrite"}}, edits: []edit{{"wal/cache.go",
		`	if !slices.Contains(*r.blocks, block) {`, `	if false {`}}},
	{name: "cache_never_releases", what: "the log's cache holds the blocks of what it has dropped", in: "wal", found: "TestBlocksThatAreShown|TestCacheTwin", edits: []edit{{"wal/cache.go",
		`		arena.ReleaseAll(*r.blocks)
`, ``}}},
	{name: "loan_forgets_to_retain", what: "the apply lane is shown data of a block that it does not hold", in: "wal", found: "TestBlocksThatAreShown", edits: []edit{{"wal/cache.go",
		`			loan.Show(in)
`, `			_ = in
`}}},
	{name: "readers_get_blocks", what: "a reader that may keep an entry gets the reused memory of a block", in: "wal", found: "TestBlocksThatAreShown|TestCacheTwin", edits: []edit{{"wal/cache.go",
		`			e.Data = bytes.Clone(e.Data)
`, ``}}},
	{name: "intake_keeps_the_buffer", what: "a host keeps commands in the buffer of a connection", in: "sim", found: "TestSeeds", args: "-seeds 20 -failures 1", also: []judge{{in: "host", test: "TestIntake"}}, edits: []edit{{"host/payloads.go",
		`case len(e.Data) == 0, len(e.Data) >= transport.LentBytes: // not lent`, `case len(e.Data) < 1<<20: // not lent`}}},
	{name: "intake_is_unbounded", what: "blocks take any amount of memory", in: "host", found: "TestIntake", edits: []edit{{"host/payloads.go",
		` && in.pool.UsedBytes() < in.maxBytes`, ``}}},
}
