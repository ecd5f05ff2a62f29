package planted_test

// outcomeBugs are bugs in what clients are told, and in the sessions.
var outcomeBugs = []bug{
	{name: "session_forgets_the_open", what: "a Session tells members to forget a number whose command has no outcome yet", in: ".", found: "TestSessionKeepsTheLowestNumber", edits: []edit{{"sessions.go",
		`s.low < s.next && !s.open[s.low]`, `s.low < s.next && s.low <= m.Number`}}},
	{name: "unknown_ends_a_number", what: "a Session counts a number as ended whose outcome is unknown", in: ".", found: "TestSessionHearsOfOutcomes", edits: []edit{{"sessions.go",
		`m.of != nil && !errors.Is(err, ErrIndeterminate) && `, `m.of != nil && `}}},
	{name: "led_before_it_has_read", what: "Led yields a term before everything of earlier terms is applied", in: ".", found: "TestLed", edits: []edit{{"led.go",
		`n.Read(led, Linearizable)`, `n.Read(led, Local)`}}},
	{name: "led_outlives_its_term", what: "a context of Led does not end with the leadership", in: ".", found: "TestLed", edits: []edit{{"led.go",
		`s.Role != RoleLeader || s.Term != term || n.Err() != nil`, `s.Term == 0 || n.Err() != nil`}}},
	{name: "machine_waits_for_itself", what: "a machine that is called in a turn may wait for its own node", in: ".", found: "TestMachineMustNotCallItsNode", edits: []edit{{"host/internal/apply/queue.go",
		`	outside := q.enter()`, `	outside := q.inside.Load()`}}},
	{name: "lane_is_never_inside", what: "a machine that is called by its lane outside of Apply may wait for its own node", in: ".", found: "TestMachineMustNotCallItsNode", edits: []edit{{"host/internal/apply/round.go",
		`	defer q.inside.Store(q.enter())
`, ``}}},
	{name: "skipped_are_dropped", what: "a command whose index a snapshot covers is answered as surely not committed", in: "host/internal/proposals", found: "TestPendingSkippedBySnapshot", edits: []edit{{"host/internal/proposals/queue.go",
		`q.tell(w, Settlement{Err: errCovered(index)})`, `q.tell(w, Settlement{Err: outcome.ErrDropped})`}}},
	{name: "clients_wait_at_the_end", what: "a group that stops leaves clients waiting whose commands are in the log", in: "host", found: "TestCloseAnswersEveryone", edits: []edit{{"host/internal/proposals/end.go",
		`	q.endRing(&e, outcome.WithCause(outcome.ErrIndeterminate, cause))
	q.endRouted(&e, outcome.WithCause(outcome.ErrStopped`, `	q.endRouted(&e, outcome.WithCause(outcome.ErrStopped`}}},
	{name: "answer_for_another_term", what: "a client is told that its command is committed although another leader's entry has its place", in: "host/internal/proposals", found: "TestRingTwin", also: []judge{{in: "host/internal/proposals", test: "TestTenuresOverlap"}}, edits: []edit{{"host/internal/proposals/answer.go",
		`			case term == run.term:
				f`, `			case term == run.term || true:
				f`}}},
	{name: "propose_after_the_end", what: "a turn proposes commands whose clients were told that the group has stopped and never took them", in: "host/internal/proposals", found: "TestAQueueEndsWhileATurnProposes", edits: []edit{{"host/internal/proposals/queue.go",
		`was != ended && q.proposing.CompareAndSwap(was, is)`, `q.proposing.CompareAndSwap(was, is)`}}},
	{name: "offer_after_the_end", what: "commands that a turn offers while the group stops are never answered", in: "host/internal/proposals", found: "TestAQueueEndsWhileATurnProposes", edits: []edit{{"host/internal/proposals/queue.go",
		`	if len(batch) == 0 || q.proposing.Load() != unoffered {
		return false
	}
	q.offered = batch
	return q.proposing.CompareAndSwap(unoffered, offering)`, `	q.offered = batch
	q.proposing.CompareAndSwap(unoffered, offering)
	return true`}}},
	{name: "count_refused_calls_twice", what: "the metrics count a call twice that no turn had taken when the group stopped", in: "host/internal/proposals", found: "TestWhatNoTurnHasTakenIsCountedOnce", edits: []edit{{"host/internal/proposals/end.go",
		`		case c != nil:
			c.fail(err)`, `		case c != nil:
			q.Refusals.Add(err, 1)
			c.fail(err)`}}},
	{name: "refused_calls_not_counted", what: "commands that a group refuses at its door are in no metric, and Explain does not know of the overload", in: "host", found: "TestRefusedCallsAreCounted", edits: []edit{{"host/call.go",
		`		g.countRefused(err)
	}`, `		_ = err
	}`}}},
	{name: "withdrawn_count_as_refused", what: "commands whose clients gave up before a turn count as refused by the end of the group", in: "host/internal/proposals", found: "TestQueueTwin", also: []judge{{in: "host", test: "TestRefusedCallsAreCounted"}}, edits: []edit{{"host/internal/proposals/end.go",
		`		case !p.Waiter.begin():
			q.Refusals.Withdrawn.Add(1)
`, `		case !p.Waiter.begin():
`}}},
	{name: "told_twice_at_the_end", what: "a call whose command is with the machine, though no turn has told its commit, fails twice when the group ends", in: "host/internal/proposals", found: "TestQueueTwin", edits: []edit{{"host/internal/proposals/results.go",
		`c.Caller, call.appliedIn = call.Owner, c.Term`, `c.Caller = call.Owner`}}},
	{name: "end_without_the_turn", what: "a group that stops looks how many commands its turn proposes, and the turn goes on proposing", in: "host/internal/proposals", found: "TestAQueueEndsWhileATurnProposes", edits: []edit{{"host/internal/proposals/end.go",
		`q.proposing.Swap(ended)`, `q.proposing.Load()`}}},
	{name: "result_of_another_term", what: "a client gets the result of another leader's command, which was committed in the place of its own", in: "host/internal/proposals", found: "TestClientsOfForgottenEntriesAreFound", edits: []edit{{"host/internal/proposals/take.go",
		`if at == index && run.term == term {`, `if at == index {`}}},
	{name: "withdrawn_is_proposed", what: "a command that its client has given up before its turn is proposed", in: "host", found: "TestMetricsCountOutcomes", edits: []edit{{"host/internal/proposals/queue.go",
		`		if p.Waiter.begin() {
			kept = append(kept, p)
			if c`, `		if p.Waiter.begin() || true {
			kept = append(kept, p)
			if c`}}},
	{name: "untaken_are_proposed", what: "commands of SubmitMany for which there is no memory are said to be refused, and proposed", in: "host", found: "TestSubmitManyWhenOverloaded", edits: []edit{{"host/inbox.go",
		`append(b.waiting.proposals, batch[:taken]...)`, `append(b.waiting.proposals, batch...)`}}},
	{name: "gathered_are_kept", what: "the outcomes of deposed commands are gathered for their Completions, and not handed over", in: "host", found: "TestSubmitManyIsAnsweredInTheEnd", also: []judge{{in: "sim", test: "TestTogether", args: "-together 40"}}, edits: []edit{{"host/internal/proposals/queue.go",
		`q.answer(w, 0, 0, Dropped) })
	q.delivery.Flush()`, `q.answer(w, 0, 0, Dropped) })`}}},
	{name: "next_gets_the_tag", what: "an outcome of SubmitMany comes with the tag of the next command", in: "sim", found: "TestTogether", args: "-together 4", edits: []edit{{"host/internal/proposals/waiter.go",
		`Tag: w.tag,`, `Tag: w.tag + 1,`}}},
	{name: "places_are_lost", what: "SubmitMany keeps the places of commands that were not taken", in: "host", found: "TestSubmitManyWhenOverloaded", edits: []edit{{"host/submitmany.go",
		`done.Cancel(begun - taken)`, `_ = begun`}}},
	{name: "memory_is_taken_over", what: "Completions take over the memory that Take is given, and clear it though outcomes wait there", in: "internal/completion", found: "TestTheMemoryOfTakeIsTheCallers", edits: []edit{{"internal/completion/queue.go",
		`	taken = append(reuse[:0], waiting...)
	clear(reuse[min(len(taken), len(reuse)):]) // what they point to must not be kept alive
	clear(waiting)
`, `	taken = waiting
	clear(reuse[:cap(reuse)])
`}, {"internal/completion/queue.go", `q.spare = waiting[:0]`, `q.waiting = append(reuse[:0], q.waiting...)`}}},
	{name: "taken_with_an_error", what: "SubmitMany to a group that has just failed takes all commands, and says why it took no more", in: "host", found: "TestSubmitManyToAGroupThatHasFailed", edits: []edit{{"host/outcome/errors.go",
		`if err == nil || cause == nil ||`, `if cause == nil ||`}}},
	{name: "places_die_with_the_codec", what: "SubmitMany keeps its places if a codec ends the goroutine", in: ".", found: "TestSubmitManyWithACodecThatEnds", edits: []edit{{"completions.go",
		`	defer func() { done.Cancel(begun - taken) }() // also if a codec ends this goroutine
`, ``}, {"completions.go", `	n.group.CountTooLarge(err)
	return taken, err
`, `	n.group.CountTooLarge(err)
	done.Cancel(begun - taken)
	return taken, err
`}}},
	{name: "reused_before_its_commit_is_told", what: "a Pending is reused before the host has told its commit, which the next command hears", in: ".", found: "TestPendingsAreReused", edits: []edit{{"propose.go",
		`s == nil || !p.told ||`, `s == nil ||`}}},
	{name: "too_large_counts_twice", what: "SubmitMany counts a command that is too large, and will be handed in again", in: ".", found: "TestTooLargeCountsOnce", edits: []edit{{"completions.go",
		`		return taken, refused // a`, `		n.group.CountTooLarge(err)
		return taken, refused // a`}}},
	{name: "taken_results_are_kept", what: "a command that hangs keeps the results of others alive that were taken", in: ".", found: "TestSubmitManyKeepsNoResults", edits: []edit{{"propose.go",
		`	p.result = none // the pool`, `	_ = none // the pool`}}},
	{name: "read_with_the_next_tag", what: "a read of SubmitRead comes with the tag of the next one", in: "sim", found: "TestTogether", args: "-together 4", edits: []edit{{"host/submitmany.go",
		`outcome.Completion{Tag: r.tag, Read`, `outcome.Completion{Tag: r.tag + 1, Read`}}},
	{name: "reads_of_a_round_one_by_one", what: "each read of a round comes to a sink in a call of its own", in: "host", found: "TestSubmitReadToASink", edits: []edit{{"internal/completion/together.go",
		`	if q.sink == nil {
		q.Add(outcome)`, `	if true {
		q.Add(outcome)`}}},
	{name: "reads_keep_the_budget", what: "reads that have ended keep their memory", in: "host/internal/reads", found: "TestReadersAreToldWithoutTheLock", edits: []edit{{"host/internal/reads/queue.go",
		`		q.settings.Budget.Give(ended.bytes)`, `		_ = ended.bytes`}}},
	{name: "held_reads_are_not_told", what: "the reads of a round never reach their sink", in: "host", found: "TestSubmitReadToASink", edits: []edit{{"host/internal/reads/read.go",
		`		t.Flush()`, `		_ = t`}}},
	{name: "frame_numbers_reused", what: "a host numbers the frames of forwarded commands from 1 again after a restart", in: "sim", found: "TestExactlyOnce", args: "-duplicates 60", edits: []edit{{"host/host.go",
		`return h.storage.log.Fence().Generation<<40 + h.network.frames.Add(1)`, `return h.network.frames.Add(1)`}}},
	{name: "forgotten_is_applied", what: "a number below the lowest that its client waits for is applied", in: "host/session", found: "TestANumberBelowTheLowestIsForgotten", edits: []edit{{"host/session/table.go",
		`	if m.Number < s.low {
		return Forgotten`, `	if false {
		return Forgotten`}}},
	{name: "sessions_not_in_snapshot", what: "a snapshot has an empty table of sessions", in: "sim", found: "TestSnapshots", args: "-takes 20", edits: []edit{{"host/session/form.go",
		`	dst = binary.AppendUvarint(dst, uint64(len(t.sessions)))
	for s := t.idle.next;`, `	dst = binary.AppendUvarint(dst, uint64(0*len(t.sessions)))
	for s := t.idle;`}}},
	{name: "read_timed_twice", what: "a read is timed twice", in: "sim", found: "TestSeeds", args: "-seeds 60 -failures 1", says: "reads, and answered", edits: []edit{{"host/internal/reads/queue.go",
		`		r.timed = false
`, `		q.took.Add(0)
`}}},
}
