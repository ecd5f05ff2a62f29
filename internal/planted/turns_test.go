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
