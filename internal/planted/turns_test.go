package planted_test

// turnBugs are bugs in the turns and lanes of a host.
var turnBugs = []bug{
	{name: "delayed_flush_not_awaited", what: "in group-delay an answer leaves before the delayed flush", in: "host/internal/appendlane", found: "TestAppendLaneGathersWhileTheFlushMayWait", edits: []edit{{"host/internal/appendlane/lane.go",
		`		if wait > 0 {
			l.later.Set(wait)
			return false
		}`, `		if wait > 0 {
			l.later.Set(wait)
		}`}}},
	{name: "lane_ignores_sync_error", what: "the append lane answers although a sync has failed", same: "the flush says it again when it is completed", edits: []edit{{"host/internal/appendlane/lane.go",
		`	if err := f.Wait(); err != nil {
		return 0, err
	}`, `	_ = f.Wait()`}}},
	{name: "unparked_for_ever", what: "what waits behind entries that a full disk refused is not written when there is space again", in: "host/internal/appendlane", found: "TestAppendLaneWaitsForRoom", edits: []edit{{"host/internal/appendlane/lane.go",
		`	q.StopOvertaking()
	if !q.Empty() {`, `	q.StopOvertaking()
	if false {`}}},
	{name: "early_answers_lost", what: "answers that could overtake what a full disk refuses are lost when there is space again", in: "host/internal/appendlane", found: "TestVoteWithoutSpace", edits: []edit{{"host/internal/workqueue/precedence.go",
		`	if len(q.early) > 0 {
		m :=`, `	if false {
		m :=`}}},
	{name: "rounds_unfair", what: "a group with much to write takes a whole round of the append lane", in: "host/internal/appendlane", found: "TestShareOfARound", edits: []edit{{"host/internal/appendlane/lane.go",
		`			if n == 1 && len(l.batch) == 0 {`, `			if true {`}}},
	{name: "fetched_not_compared", what: "entries that were read for a follower are sent although the log was cut meanwhile", in: "host/internal/storage", found: "TestEntriesThatWereReadAreComparedWithTheLog", edits: []edit{{"host/internal/storage/storage.go",
		`err != nil || term != last.Term {`, `err != nil && term != last.Term {`}}},
	{name: "no_alarm_for_held", what: "no alarm ends a wait for clients that do not come back, so their neighbours wait for ever", in: "host", found: "TestHeldCommandsLeaveTogether", edits: []edit{{"host/nextbatch.go",
		`		g.proposals.alarm.Set(v.Again, now)`, `		_ = now`}}},
	{name: "held_after_a_refusal", what: "a batch that the core has refused counts as begun, and the next command wakes no turn", in: "host", found: "TestARefusedBatchHoldsNothing", edits: []edit{{"host/internal/proposals/batching.go",
		`	case b.term == 0 || b.own == 0 && b.again == 0:`, `	case b.term == 0:`}}},
	{name: "held_when_deposed", what: "commands that a leader held stay when it is deposed, and their clients hear nothing", in: "host", found: "TestHeldCommandsAreAnswered", edits: []edit{{"host/internal/proposals/batching.go",
		`	case b.term == 0 || b.own == 0 && b.again == 0:`, `	case b.term > 0 && b.own == 0 && b.again == 0:`}}},
	{name: "held_by_others", what: "a command is held behind batches of other hosts, which follow one another without a pause", in: "host", found: "TestForwardedCommandsHoldNone", edits: []edit{{"host/offer.go",
		`g.proposeEntries(entries, commands, 0)`, `g.proposeEntries(entries, commands, commands)`}}},
	{name: "alarm_forgotten", what: "an alarm that a turn sets while the timer rings is forgotten, and held commands wait for a tick", in: "host/internal/sched", found: "TestAnAlarmIsSetWhileItRings", edits: []edit{{"host/internal/sched/alarm.go",
		`		if later := a.At(); later == 0 || later == at || a.set.Swap(true) {`, `		if later := a.At(); later == 0 || at != 0 || a.set.Swap(true) {`}}},
	{name: "alarm_rings_late", what: "an alarm for an earlier time, set while the timer rings, rings at the time of before", in: "host/internal/sched", found: "TestAnAlarmIsSetWhileItRings", edits: []edit{{"host/internal/sched/alarm.go",
		`			if later := a.At(); later == 0 || later >= at {`, `			if true {`}}},
	{name: "stall_chooses", what: "one stall of the machine makes a leader choose the worse rule for its batches", in: "host/batches", found: "TestAStallChoosesNothing", edits: []edit{{"host/batches/choice.go",
		`	case c.other > 0 && isBetter(c.other, took):`, `	case c.other > 0:`}}},
	{name: "trial_of_a_part_of_a_round", what: "a trial is shorter than a round of a slow disk, and measures anything", in: "host/batches", found: "TestATrialLastsForManyRounds", edits: []edit{{"host/batches/choice.go",
		`max(trialTime, trialRounds*round)`, `trialTime`}}},
	{name: "hopeless_trial_goes_on", what: "a rule that makes commands take twice as long is tried to the end", in: "host/batches", found: "TestAHopelessTrialEndsEarly", edits: []edit{{"host/batches/choice.go",
		`c.measure.isAbove(c.own+c.own/2)`, `c.measure.isAbove(9*c.own)`}}},
	{name: "hopeful_trial_ends", what: "a trial ends after a quarter because commands take a little longer", in: "host/batches", found: "TestAHopelessTrialEndsEarly", edits: []edit{{"host/batches/choice.go",
		`c.measure.isAbove(c.own+c.own/2)`, `c.measure.isAbove(c.own)`}}},
	{name: "trial_without_an_end", what: "on a line that is long at times a rule is tried for ever, and never judged", in: "host/batches", found: "TestALineThatIsLongAtTimes", edits: []edit{{"host/batches/choice.go",
		`		*c = Choice{measure: trial{since: s.Now, at: s.Now}}`, `		c.measure = trial{since: s.Now, at: s.Now}`}}},
	{name: "measured_while_not_asked", what: "what was pending when a leader was deposed counts as waiting until it leads again", in: "host/internal/proposals", found: "TestARuleBeginsAnew", edits: []edit{{"host/internal/proposals/batching.go",
		`b.mean, b.flush, b.rule = term, b.open[:0], 0, 0, 0, 0, nil`, `b.mean, b.flush = term, b.open[:0], 0, 0, 0, 0`}}},
	{name: "blocked_commands_measured", what: "a rule counts a batch in each turn in which commands wait for space", in: "host", found: "TestTheRuleHearsNothingOfCommandsThatWaitForMore", edits: []edit{{"host/inbox.go",
		`		ask(batches.State{Now: now})
`, `		ask(batches.State{Now: now, Waiting: n})
`}}},
	{name: "held_without_space", what: "commands are held though the share is full, and others are refused for them", in: "host", found: "TestHeldCommandsCostNoSpace", edits: []edit{{"host/inbox.go",
		`	return b.proposalBytes >= min(b.memory.waiting.Max/8, b.memory.received.Max/16) || b.memory.waiting.Used() >= b.memory.waiting.Max/2`, `	return false`}}},
	{name: "snapshot_taken_unseen", what: "a snapshot that is queued after the look for one is written to the log, and not restored", in: "host/internal/workqueue", found: "TestNoSnapshotBeforeItIsInstalled", edits: []edit{{"host/internal/workqueue/queue.go",
		`	case s != installed && s != nil:`, `	case false:`}}},
	{name: "shared_end_unseen", what: "a command that no quorum takes waits for ever, beyond the time that a service gives it", in: ".", found: "TestEndsSayWhatIsMissing", edits: []edit{{"propose.go",
		`	case <-done:
	case <-reached:
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.happened {`, `	case <-done:
	}
	_ = reached
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.happened {`}}},
	{name: "read_without_shared_end", what: "a read that no quorum answers waits for ever, beyond the time that a service gives it", in: ".", found: "TestEndsSayWhatIsMissing", edits: []edit{{"host/internal/reads/read.go",
		`	case <-done:
	case <-reached:
	}`, `	case <-done:
	}
	_ = reached`}}},
	{name: "shared_end_early", what: "requests that share an end have less time than they were given", in: "internal/timelimit", found: "TestRequestsEnd", edits: []edit{{"internal/timelimit/timelimit.go",
		`at: now.Add(after + span), before`, `at: now.Add(after), before`}}},
	{name: "waits_in_vain_go_on", what: "a leader waits for clients that never come back, round after round", in: "host/batches", found: "TestWaitsForNothingBecomeRare", edits: []edit{{"host/batches/cohort.go",
		`		c.pause = 1 << c.misses`, `		c.pause = 0`}}},
	{name: "late_clients_not_awaited", what: "a leader's wait ends while its clients come back, and they fall into two parts", in: "host/batches", found: "TestCohortWaitsWhileClientsComeBack", edits: []edit{{"host/batches/cohort.go",
		`s.Waiting-c.had < c.target-s.Waiting || s.Now >= c.last`, `true`}}},
	{name: "late_clients_awaited_long", what: "a leader's wait has another part, and another one, however few come back", in: "host/batches", found: "TestCohortPromises", edits: []edit{{"host/batches/cohort.go",
		`s.Waiting-c.had < c.target-s.Waiting || s.Now >= c.last`, `s.Now >= c.last`}}},
	{name: "waits_not_counted", what: "what held commands have waited is not counted, and a host takes the rule that holds for the better one", in: "sim", found: "TestAHostFindsTheBetterRule", edits: []edit{{"host/batches/choice.go",
		`		c.measure.area += s.Waited
`, ``}}},
	{name: "ticks_before_messages", what: "a group that was late counts the time before it hears the heartbeats that wait", in: "host", found: "TestMessagesComeBeforeTicks", edits: []edit{{"host/turn.go",
		`counting = min(left, g.core.node.TicksToEvent()-1)`, `counting = left`}}},
	{name: "stall_unseen", what: "a leader whose disk hangs or is full keeps the leadership", in: "sim", found: "TestGrayFailures", edits: []edit{{"host/internal/leadership/stall.go",
		`	case full > l.settings.Heartbeat:`, `	case full > l.settings.Heartbeat && false:`}, {"host/internal/leadership/stall.go",
		`	case hangs > bound:`, `	case hangs > bound && false:`}}},
	{name: "no_hand_over_at_close", what: "a leader does not hand over when its host is closed", in: "host", found: "TestHandOverAtAnyTick", edits: []edit{{"host/leadership.go",
		`	if st.RaftState != raft.StateLeader {
		return false
	}
	target := g.leadership.leader.Successor`, `	if st.RaftState != raft.StateFollower {
		return false
	}
	target := g.leadership.leader.Successor`}}},
}
