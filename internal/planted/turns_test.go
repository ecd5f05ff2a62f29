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
		`	case b.term == 0 || b.first == len(b.open) && b.again == 0:`, `	case b.term == 0:`}}},
	{name: "held_when_deposed", what: "commands that a leader held stay when it is deposed, and their clients hear nothing", in: "host", found: "TestHeldCommandsAreAnswered", edits: []edit{{"host/internal/proposals/batching.go",
		`	case b.term == 0 || b.first == len(b.open) && b.again == 0:`, `	case b.term > 0 && b.first == len(b.open) && b.again == 0:`}}},
	{name: "held_without_space", what: "commands are held though the share is full, and others are refused for them", in: "host", found: "TestHeldCommandsCostNoSpace", edits: []edit{{"host/inbox.go",
		`	return b.proposalBytes >= min(b.memory.waiting.Max/8, b.memory.received.Max/16) || b.memory.waiting.Used() >= b.memory.waiting.Max/2`, `	return false`}}},
	{name: "waits_in_vain_go_on", what: "a leader waits for clients that never come back, round after round", in: "host/batches", found: "TestWaitsForNothingBecomeRare", edits: []edit{{"host/batches/cohort.go",
		`		c.pause = 1 << c.misses`, `		c.pause = 0`}}},
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
