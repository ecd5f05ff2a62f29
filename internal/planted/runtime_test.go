package planted_test

// runtimeBugs are bugs in the runtime, package host and those below it.
var runtimeBugs = []bug{
	{name: "most_voters_of_both_halves", what: "a leader with a stalled disk takes most of all voters for a quorum in a joint configuration", in: "host/internal/leadership", found: "TestReadyWithoutInAJointConfiguration", edits: []edit{{"host/internal/leadership/acks.go",
		`if !isQuorum(func(id uint64) bool { return slices.Contains(ready, id) }) {`, `if _ = isQuorum; len(ready) < 3 {`}}},
	{name: "place_without_bound", what: "a leader hands over for placement again and again, however often within an hour", in: "sim", found: "TestPlacement", args: "-placements 1", edits: []edit{{"host/internal/placement/member.go",
		`if moves := m.recent.Load(); moves != nil {
		return moves.Count(`, `if moves := m.recent.Load(); moves != nil && false {
		return moves.Count(`}}},
	{name: "status_after_the_answers", what: "a client that was answered reads the log, and its command is not there", in: "host", found: "TestStatusComesBeforeTheAnswers", edits: []edit{{"host/turn.go",
		`	g.life.status.commit(st.Commit, st.LastIndex)
`, ``}}},
	{name: "lag_without_bound", what: "a leader takes commands however far its state machine is behind", in: "host", found: "TestASlowMachineDelaysItsClients", edits: []edit{{"host/internal/proposals/backlog.go",
		`	full = b.bytes > 0 && b.bytes >= b.Max
`, ``}}},
	{name: "lag_never_over", what: "a leader that refuses commands because of its state machine refuses them for ever", in: "host", found: "TestASlowMachineDelaysItsClients", edits: []edit{{"host/internal/proposals/backlog.go",
		`b.parts[n].last <= applied {`, `b.parts[n].last <= applied && b.parts[n].last < 1 {`}}},
	{name: "hint_of_the_unrecorded", what: "a member that lags refuses its leader for ever, whose directory was replaced and which it has never recorded", in: "host", found: "TestALaterRosterAdmitsAHostThatWasNeverRecorded", also: []judge{{in: "sim", test: "TestSeeds", args: "-first 8186 -seeds 1", says: "has not elected a leader, committed and converged"}}, edits: []edit{{"host/handshakes.go",
		`, !isReplaced && g.members.View().IsHinted(peer.ID, peer.Incarnation):`, `:`}, {"host/handshakes.go",
		`	isReplaced := slices`, `	_ = slices`}}},
	{name: "hint_of_the_replaced", what: "a later roster of one group admits a directory that another has replaced, where the host was never recorded", in: "host", found: "TestALaterRosterAdmitsAHostThatWasNeverRecorded", edits: []edit{{"host/handshakes.go",
		`, !isReplaced && g.members.View()`, `, g.members.View()`}, {"host/handshakes.go",
		`	isReplaced := slices`, `	_ = slices`}}},
	{name: "any_directory", what: "a host accepts a peer with any directory", in: "sim", found: "TestSeeds", args: "-seeds 100 -failures 1", says: "were introduced to each other", edits: []edit{{"host/handshakes.go",
		`h.trust.admission.Incarnation(peer.ID); known {`, `h.trust.admission.Incarnation(peer.ID); known || true {`}, {"host/internal/identity/admission.go",
		`return heard &&`, `return true || heard &&`}, {"host/internal/identity/admission.go",
		`if slices.Contains(a.retired[now.ID], now.Incarnation) || a.leaves(now.ID, now.Incarnation) {`, `if false {`}, {"host/internal/identity/admission.go",
		`	switch {
	case before.Incarnation`, `	switch {
	case true:
		return nil
	case before.Incarnation`}}},
	{name: "no_recheck", what: "Lease.Holds ignores the time that has passed since Group.Lease", in: "sim", found: "TestLeases", args: "-leases 24", says: "still holds its lease of term", edits: []edit{{"host/internal/reads/lease.go",
		` || w.Boottime() >= l.until {`, ` {`}}},
	{name: "lease_from_answer", what: "a lease begins when its round was answered, not when it was sent", in: "sim", found: "TestLeases", args: "-leases 100", edits: []edit{{"host/internal/reads/round.go",
		`sent: asked.at,`, `sent: r.queue.wiring.Boottime(),`}}},
	{name: "believe_one_removal", what: "a member stops when one host says that it was removed", in: "sim", found: "TestCatchUp", args: "-catch-ups 8", says: "has stopped by itself", also: []judge{{in: "host", test: "TestHarmlessLies", args: "-lies-every 1"}}, edits: []edit{{"host/internal/members/removal.go",
		`believesRemoval(by uint64) bool {
`, `believesRemoval(by uint64) bool {
	if true {
		return true
	}
`}}},
	{name: "flapping_fills_the_log", what: "each transfer that a receiver ends is a line in the log", in: "host/internal/bulk", found: "TestAFlappingReceiverDoesNotFillTheLog", edits: []edit{{"host/internal/bulk/transfers.go",
		`float64(time.Second))); ok {`, `float64(time.Second))); ok || true {`}}},
	{name: "removed_are_silent", what: "a member that was removed no longer tells others that they were removed, too", in: "host", found: "TestRemovedMemberTellsOthersOfTheirRemoval", edits: []edit{{"host/memberview.go",
		`	default:
		g.members.AnswerRoster`, `	case g.Err() != nil:
	default:
		g.members.AnswerRoster`}}},
	{name: "refused_come_at_once", what: "commands that the leader has refused are all sent to it again in the next tick", in: "host", found: "TestRefusedCallsDoNotKeepOnComing", edits: []edit{{"host/internal/proposals/retries.go",
		`q.Pause(v, min(ticks<<s.refusals, max(ticks, 2*q.HeartbeatTicks)))
	s.framesMost, s.refusals = 1, min(s.refusals+1, 4)`, `q.Pause(v, ticks)`}}},
	// The simulation met it once in ten thousand seeds, and not in those of today: a session must be given up
	// in the moment in which its last call ends.
	{name: "route_nothing", what: "a group that gave up its session and has no call left takes turn after turn", in: "host/internal/proposals", found: "TestNothingIsRoutedWithoutACall", edits: []edit{{"host/internal/proposals/retries.go",
		`return q.calls.n.Load() > 0 && q.calls.fresh.Load()`, `return q.calls.fresh.Load()`}}},
	{name: "hear_replaced", what: "a host goes on hearing the connections of a directory when another one takes its place", in: "host/internal/identity", found: "TestReplacedDirectoryIsNotHeard", edits: []edit{{"host/internal/identity/admission.go",
		`if replaces {
		a.review`, `if false {
		a.review`}, {"host/internal/identity/admission.go",
		`return heard &&`, `return true || heard &&`}}},
	{name: "forget_vote", what: "a restart forgets the vote of the node in its term", in: "sim", found: "TestSeeds", args: "-seeds 500 -failures 1", says: "has two leaders: host", edits: []edit{{"host/internal/storage/storage.go",
		`	return hs, s.Conf, nil`, `	hs.Vote = raft.None
	return hs, s.Conf, nil`}}},
	{name: "one_hard_state", what: "each message of a round is one write, and the only hard state is in the first of them", in: "host/internal/appendlane", found: "TestTornRoundCommitsNothing", edits: []edit{{"host/internal/appendlane/queue.go",
		`	q.joint.writes = needed
`, `	if q.joint.writes = needed; len(needed) > 0 {
		for i := range needed {
			needed[i].HardState = raftpb.HardState{}
		}
		needed[0].HardState = q.hard
	}
`}, {"host/internal/appendlane/write.go",
		`	switch {
	case m.Snapshot != nil:`, `	switch {
	case true:
		return false
	case m.Snapshot != nil:`}}},
	{name: "put_back_vote", what: "a refused round writes its own term and vote, although later ones have overtaken it", in: "host/internal/appendlane", found: "TestRefusedRoundDoesNotPutTheVoteBack", edits: []edit{{"host/internal/appendlane/write.go",
		`if workqueue.Behind(w.HardState, s.hs) {`, `if false {`}, {"host/internal/appendlane/write.go",
		`if !raft.IsEmptyHardState(w.HardState) && workqueue.Behind(w.HardState, s.hs) {`, `if !raft.IsEmptyHardState(w.HardState) && false {`}}},
	{name: "skip_sessions", what: "the members of a group apply a command again that their table of sessions knows", in: "sim", found: "TestExactlyOnce", args: "-duplicates 20", says: "and again at", edits: []edit{{"host/internal/apply/commands.go",
		`			if verdict != session.Fresh {`, `			if verdict == session.Duplicate {
				verdict = session.Fresh
			} else if verdict != session.Fresh {`}}},
	{name: "any_key", what: "a host accepts a member with any key that a CA has signed", in: "host", found: "TestMembersAreBoundToKeys", edits: []edit{{"host/keys.go",
		`presented.IsZero() || h.trust.keys`, `presented.IsZero() || true || h.trust.keys`}}},
	{name: "learn_after_core", what: "a leader makes the read lane of a new member after the core has sent to it", in: "host", found: "TestUnmetHostIsAdded", edits: []edit{{"host/internal/members/commit.go",
		`	c.w.LearnMembers(next) // before the core, which may send to a new member at once
`, ``}}},
	{name: "snapshot_members_unknown", what: "a host that starts again does not know the members that only its snapshot names", in: "host", found: "TestMemberOfASnapshotIsExplained", edits: []edit{{"host/rosters.go",
		`LearnMembers(r *membership.Roster) { g.host.learnMembers(r) }`, `LearnMembers(r *membership.Roster) {
	if g.core.node != nil {
		g.host.learnMembers(r)
	}
}`}, {"host/groups.go",
		`	h.learnHosts(store.Members()) // before the core
`, ``}}},
	{name: "nil_lane", what: "a read for a host that is not known follows nil", in: "host", found: "TestTooManyHosts", edits: []edit{{"host/internal/storage/readers.go",
		`	if l == nil {
		return`, `	if l == nil && false {
		return`}}},
	{name: "key_of_the_lost", what: "a plan binds the directory that replaces a lost one to the key of the lost one", in: "host", found: "TestReplacedMemberKeepsItsNewKey", edits: []edit{{"host/bindings.go",
		`	if isAdmitted {
`, `	last, _ := h.trust.admission.Incarnation(id)
	d.Key = h.trust.keys.Presented(id, last)
	if isAdmitted {
`}}},
	{name: "contain_nothing", what: "a panic of a turn ends the process although only its group can be half-done", in: "host", found: "TestPanicOfATurnStopsTheGroup", edits: []edit{{"host/internal/containment/turns.go",
		`panicking()); where != "" {`, `panicking()); where != "" || true {`}}},
	{name: "contain_everything", what: "a panic of a turn under a lock that groups share stops the group only", in: "host", found: "TestPanicUnderALockGoesOn", edits: []edit{{"host/internal/containment/turns.go",
		`return !mayLock(pkg+".", name)`, `return true || !mayLock(pkg+".", name)`}}},
	{name: "contain_no_part", what: "a panic of a turn ends the process if a part of the runtime is on its stack, as it is in each duty", in: "host", found: "TestPanicOfADutyStopsTheGroup", edits: []edit{{"host/internal/containment/turns.go",
		`strings.HasPrefix(path, partsPath):`, `path == partsPath:`}}},
	{name: "late_order_obeyed", what: "a member obeys an order to campaign that has waited while its process was paused", in: "host", found: "TestLateOrderIsRefused", edits: []edit{{"host/lateorder.go",
		`!slices.ContainsFunc(g.work.taken.messages, isOrder) ||`, `true || !slices.ContainsFunc(g.work.taken.messages, isOrder) ||`}}},
	{name: "event_error_object", what: "an error in an event is an empty object in JSON", in: "host", found: "TestErrorsOfEventsAreTextInJSON", edits: []edit{{"host/event/json.go",
		`	return err.Error()`, `	return err`}}},
	{name: "keep_token", what: "a join token stays valid when it was used", in: "sim", found: "TestChurn", args: "-churns 100", says: "has let in two hosts", edits: []edit{{"host/membership/token.go",
		`if !slices.ContainsFunc(tokens, used) {`, `if true {`}}},
	{name: "rejoin_removed", what: "a directory that was removed is a member again", in: "host/membership", found: "TestRemovedDirectoryStaysRemoved", edits: []edit{{"host/membership/change.go",
		`slices.ContainsFunc(r.Removed, func(m Member) bool { return m.Incarnation == s.Incarnation }):`, `slices.ContainsFunc(r.Removed, func(m Member) bool { return m.Incarnation == s.Incarnation }) && false:`}}},
	{name: "stage_blindly", what: "a leader changes the members although those left are no quorum", in: "host", found: "TestPlansAreRefused", edits: []edit{{"host/internal/plans/stages.go",
		`	rosters, err := r.Play(stages)`, `	if true {
		return ""
	}
	rosters, err := r.Play(stages)`}}},
	{name: "hand_over_blindly", what: "a leader with a stuck state machine hands over to a member that has not applied more", in: "sim", found: "TestStuckMachines", args: "-grays 12", edits: []edit{{"host/internal/leadership/machine.go",
		`case a.Applied < s.goal:`, `case false:`}}},
	{name: "keep_stuck", what: "a leader with a stuck state machine keeps the leadership", in: "sim", found: "TestStuckMachines", args: "-grays 12", says: "still leads, although the others have applied more", edits: []edit{{"host/internal/leadership/machine.go",
		`if target == raft.None {
		return false
	}
	st :=`, `if true {
		return false
	}
	st :=`}}},
	{name: "short_read_is_final", what: "a group stops when what its machine must apply cannot be opened for a moment", in: "host", found: "TestNoOpenEndsAHost", also: []judge{{in: "sim", test: "TestDescriptors", args: "-shortages 10", says: "has stopped by itself"}}, edits: []edit{{"host/internal/apply/round.go",
		`			if vfs.IsShort(err) {
				return nil, 0, retried{err}`, `			if vfs.IsShort(err) && false {
				return nil, 0, retried{err}`}}},
	{name: "short_follower_read_is_final", what: "a leader stops when what a follower lacks cannot be opened for a moment", in: "host", found: "TestNoOpenEndsAHost", also: []judge{{in: "sim", test: "TestDescriptors", args: "-shortages 10", says: "has stopped by itself"}}, edits: []edit{{"host/internal/storage/readers.go",
		`	if vfs.IsShort(err) {`, `	if vfs.IsShort(err) && false {`}}},
	{name: "short_restore_is_final", what: "a group stops when a snapshot that was received cannot be opened for a moment", in: "host", found: "TestARestoreWaitsForADescriptor", also: []judge{{in: "sim", test: "TestDescriptors", args: "-shortages 10", says: "has stopped by itself"}}, edits: []edit{{"host/install.go",
		`		if err != nil && !vfs.IsShort(err) {`, `		if err != nil {`}}},
	{name: "lanes_one_by_one", what: "a host whose apply lanes all hang starts others only when the hang is reported", in: "sim", found: "TestHungGroups", args: "-grays 12", says: "is not applied for a second", edits: []edit{{"host/internal/apply/lanes.go",
		`waiting > 0 && busy == len(p.lanes) &&`, `false && waiting > 0 && busy == len(p.lanes) &&`}}},
	{name: "quick_behind_slow", what: "an apply lane takes groups in their order, however long their rounds are", in: "host", found: "TestSlowMachinesCostTheOthersARound", edits: []edit{{"host/internal/apply/lanes.go",
		`case q.slow:`, `case q.slow && false:`}}},
	{name: "forget_drained", what: "an apply lane forgets what waits until all is applied, if it came meanwhile", in: "host/internal/apply", found: "TestApplyEndsWithWhatIsDrained", edits: []edit{{"host/internal/apply/round.go",
		`return len(q.work) > 0 || q.drained.Load() != nil //`, `return len(q.work) > 0 //`}}},
	{name: "restore_no_sessions", what: "a member that begins from a snapshot forgets its sessions", in: "sim", found: "TestSnapshots", args: "-first 21 -takes 60", says: "at log time", edits: []edit{{"host/internal/apply/restore.go",
		`s.table, s.last = table, last`, `s.last = last`}}},
	{name: "lose_wake", what: "a shard forgets a group that was given something to do while its turn ran", in: "host", found: "TestInputDuringATurnIsNotLost", edits: []edit{{"host/internal/sched/worker.go",
		`			s.enqueue(seat, false)
		}
		s.wheel.set(seat, due)`, `			s.enqueue(seat, false)
		} else {
			seat.runnable.Leave()
		}
		s.wheel.set(seat, due)`}}},
	{name: "input_waits_for_another", what: "the group does not see an order to hand over that comes alone, and the order waits until something else comes", in: "host", found: "TestEachInputIsFound", edits: []edit{{"host/inbox.go",
		`	b.fill()
	b.waiting.handOver = true`, `	b.mu.Lock()
	b.waiting.handOver = true`}}},
	{name: "turn_begins_with_nothing", what: "a turn does not get what its group was given", in: "host/internal/sched", found: "TestATurnBeginsWithWhatWasGiven", edits: []edit{{"host/internal/sched/worker.go",
		`	seat.turner.Begin(w.since, crowded)
`, ``}}},
	{name: "due_is_remembered", what: "a duty that has had no time is never asked again, though it was called", in: "host/internal/turn", found: "TestDutiesThatHaveNoTimeAreNotAsked", edits: []edit{{"host/internal/turn/turn.go",
		`		w.rests = false
		if t.changed(c) {`, `		if t.changed(c) {`}}},
	{name: "inputs_handed_twice", what: "a turn gets the inputs of the turn before again", in: "host", found: "TestInboxCollapses", edits: []edit{{"host/inbox.go",
		`	b.waiting.givenInputs, *spare = *spare, b.waiting.givenInputs
`, `	*spare = b.waiting.givenInputs
`}}},
	{name: "unended_inputs_handed_twice", what: "the inputs of a turn that has not ended well come again", in: "host", found: "TestInboxCollapses", edits: []edit{{"host/inbox.go",
		`	spare.reset() // again, if the turn before has not ended well
`, ``}}},
	{name: "left_group_keeps_messages", what: "a group that has ended keeps the messages that wait for a turn", in: "host", found: "TestAClosedInboxKeepsNoMessages", edits: []edit{{"host/inbox.go",
		`	b.waiting.messages, b.waiting.fetched, b.waiting.forwards = nil, nil, nil
`, ``}}},
	{name: "verdict_loses_a_wake", what: "a command that comes while the rule for the next batch is asked waits for ever: its group is not woken", in: "host", found: "TestAVerdictFindsWhatCameMeanwhile", edits: []edit{{"host/inbox.go",
		`	b.verdict = v
	b.setDue()
	return b.due.Load()`, `	b.verdict = v
	b.setDue()
	return false`}}},
	{name: "sleep_while_others_wait", what: "a shard sleeps after a turn that ends without the lock, though a group waits whose wake came before that turn", in: "host/internal/sched", found: "TestTurnsEndWithoutTheLock", edits: []edit{{"host/internal/sched/worker.go",
		`		return waiting > 0, waiting == 0
`, `		return false, waiting == 0
`}}},
	{name: "wake_for_commands_once", what: "commands that come after a turn has begun do not wake their group", in: "host", found: "TestCommandsWakeOnce", edits: []edit{{"host/inbox.go",
		`	b.woken.Store(false)
`, ""}}},
	{name: "keep_what_is_held", what: "a worker that has waited for other groups before it sends does not send if none has come", in: "host/internal/sched", found: "TestWorkerGathersBeforeItSends", edits: []edit{{"host/internal/sched/worker.go",
		`		w.flush() // nothing has come, or a group that waited was closed
`, ""}}},
	{name: "hold_what_is_urgent", what: "a vote waits for the messages of other groups", in: "host/internal/sched", found: "TestWorkerGathersBeforeItSends", edits: []edit{{"host/internal/sched/worker.go",
		`w.unsent > 1 && !w.urgent && `, `w.unsent > 1 && `}}},
	{name: "end_misses_the_deadline", what: "a turn that ends without the lock leaves its group due when it was due before", in: "host/internal/sched", found: "TestDeadlines", edits: []edit{{"host/internal/sched/worker.go",
		`!again && due == w.due && waiting != 1`, `!again && waiting != 1`}}},
	{name: "leave_does_not_hold_the_turn", what: "a group that leaves while its turn is under way is never told that the turn has ended", in: "host/internal/sched", found: "TestLeaveDuringATurn", edits: []edit{{"host/internal/sched/worker.go",
		`(w.phase.CompareAndSwap(free, held) || w.phase.Load() == held)`, `w.phase.Load() != ended`}}},
	{name: "due_together_in_another_order", what: "groups that are due together run in the order in which they became due, and not in that of their latest turns", in: "host/internal/sched", found: "TestTurnsEndWithoutTheLock", edits: []edit{{"host/internal/sched/worker.go",
		`		s.wheel.set(seat, seat.due) // behind`, `		// behind`}}},
	{name: "forget_amnesia_early", what: "a host removes the mark of its log when the first of its groups has authority", in: "host", found: "TestARepairedHostRegainsAuthority", args: "-test.count=3", edits: []edit{{"host/internal/members/authority.go",
		`return len(a.without) == 0
}

// WaitsFor`, `return true
}

// WaitsFor`}}},
	{name: "take_while_installing", what: "a group takes a snapshot between the restore and the mark of an install", in: "host", found: "TestATakeBesideAnInstall", edits: []edit{{"host/internal/snapshots/take.go",
		`s.Installing.Load()`, `s.Installing.Load() && false`}}},
	{name: "publish_early", what: "a host publishes a snapshot before its log is durable through it", in: "host", found: "TestASnapshotWaitsForTheLog", edits: []edit{{"host/internal/snapshots/take.go",
		`if s.durable.Load() < t.id.Index {`, `if false {`}}},
	{name: "compact_early", what: "a host compacts its log before a snapshot was read back", in: "host", found: "TestASnapshotIsReadBack", edits: []edit{{"host/internal/snapshots/take.go",
		`	return nil
}

// readBack`, `	return t.announce()
}

// readBack`}}},
	{name: "rescue_keeps_cluster", what: "a rescued host keeps the number of the old cluster", in: "sim", found: "TestRescues", args: "-rescues 10", says: "which is of another cluster, can be added to the rescued one", edits: []edit{{"host/rescue/directory.go",
		`Cluster: cluster, ID: d.identity.ID}`, `Cluster: to.Former, ID: d.identity.ID}`}}},
	{name: "unfounded", what: "the members of a group vote, and its leader takes commands, before the group is founded", in: "sim", found: "TestFounding", args: "-foundings 150", says: "the group is founded with the empty directory of host", edits: []edit{{"host/internal/members/refusal.go",
		`return m.w.IsFounded() ||`, `return true || m.w.IsFounded() ||`}, {"host/internal/founding/duty.go",
		`lo <= last; {`, `lo <= last && false; {`}, {"host/internal/founding/group.go",
		`return f.founded || f.current`, `return true || f.current`}, {"host/internal/founding/duty.go",
		`if f.founded {
		return false
	}
	f.SetBound()`, `if true {
		return false
	}
	f.SetBound()`}, {"host/offer.go",
		`case st.RaftState != raft.StateLeader && st.Lead == raft.None && g.members.founding.Bound() == nil:`, `case st.RaftState != raft.StateLeader && st.Lead == raft.None && g.members.founding.Bound() == nil && false:`}}},
	{name: "count_missed", what: "a group that stood still counts the time that it missed as time without a leader", in: "sim", found: "TestSeeds", args: "-first 60 -seeds 40 -failures 1", says: "sends a pre-vote although its leader is well", edits: []edit{{"host/ticks.go",
		`return max(0, passed-ticksPerHeartbeat)`, `return 0 * max(0, passed-ticksPerHeartbeat)`}}},
	{name: "supersede_snapshot", what: "a later answer of the append lane replaces one that carries a snapshot", in: "host/internal/outbox", found: "TestSupersedes", edits: []edit{{"host/internal/outbox/batches.go",
		`next.Index >= prev.Index && (prev.Snapshot == nil || prev.Snapshot == next.Snapshot)`, `next.Index >= prev.Index`}}},
	{name: "balance_blindly", what: "a host balances as if all others led nothing", in: "sim", found: "TestPlacement", args: "-placements 2", says: "ten minutes after the faults", edits: []edit{{"host/internal/placement/placer.go",
		`		if p.reject(id, now) != "" {`, `		l.Leads = 0
		if p.reject(id, now) != "" {`}}},
	{name: "trust_births", what: "the table of sessions begins a session that it may have forgotten", in: "host/session", found: "TestAnEvictedSessionIsExpired", edits: []edit{{"host/session/table.go",
		`return birth <= t.floor || t.now-birth > t.options.Expiry || birth > t.now`, `return false`}}},
	{name: "forget_conf_change", what: "a host puts a change of the members in force, and does not tell its core", in: "sim", found: "TestChurn", args: "-churns 20", edits: []edit{{"host/internal/members/commit.go",
		`	for i, cc := range changes {`, `	for i, cc := range changes[:0] {`}}},
	{name: "sync_refused", what: "the append lane forgets the sync of a round that a full disk refused, if an earlier round is synced first", in: "sim", found: "TestSeeds", args: "-first 275 -seeds 20 -failures 1", says: "counts its entries through", edits: []edit{{"host/internal/appendlane/lane.go",
		`			q.makeWrites()
`, `			q.makeWrites()
			if len(q.joint.writes) > 0 {
				l.sync = true
			}
`}, {"host/internal/appendlane/lane.go",
		`if len(q.joint.writes) > 0 {
		l.sync = true // only`, `if false {
		l.sync = true // only`}}},
	{name: "ack_before_sync", what: "the append lane gives its answers before the sync that they wait for", in: "sim", found: "TestSeeds", args: "-seeds 100 -failures 30", says: "which it would forget in a crash with", edits: []edit{{"host/internal/appendlane/lane.go",
		`	l.join(q)
}

// join puts`, `	l.join(q)
	l.deliver(q)
	l.answer()
}

// join puts`}}},
	{name: "install_without_conf", what: "a member installs a snapshot with a configuration of its own, in place of the snapshot's", in: "host", found: "TestHostsCrashWhileAMemberCatchesUp", edits: []edit{{"host/internal/snapshots/install.go",
		`ConfState: p.Manifest.Conf`, `ConfState: raftpb.ConfState{Voters: []uint64{s.Self}}`}}},
	{name: "keep_deposed", what: "the clients of a deposed leader wait until the commit index passes their commands, forever if it does not", in: "sim", found: "TestSeeds", args: "-seeds 500 -failures 1", says: "clients still wait", edits: []edit{{"host/internal/proposals/queue.go",
		`if q.oldest >= term {`, `if true {`}}},
	{name: "mix_versions", what: "a leader compares the results of members with other versions", in: "sim", found: "TestDivergence", args: "-divergences 3", edits: []edit{{"host/internal/divergence/divergence.go",
		`m.HasResults && m.version == version`, `m.HasResults`}}},
	{name: "old_answer", what: "a follower serves a read by the answer to a question that was asked before the read began", in: "sim", found: "TestLeases", args: "-leases 24", says: "before the read began", edits: []edit{{"host/internal/reads/round.go",
		`if number == r.number {`, `if true {`}, {"host/internal/reads/queue.go",
		`p.Owner.number <= number; p`, `true; p`}}},
	{name: "place_behind", what: "a leader hands over for placement to a member that is behind", in: "host", found: "TestTheBestLevelMemberGetsTheLeadership", edits: []edit{{"host/internal/placement/wish.go",
		`	case kind != raft.ProgressTypePeer:
`, `	case kind == raft.ProgressTypePeer:
		return ""
	case kind != raft.ProgressTypePeer:
`}}},
	{name: "rescue_behind", what: "a rescue takes the first directory given, also if the log of another goes further", in: "sim", found: "TestRescues", args: "-rescues 60", edits: []edit{{"host/rescue/rescue.go",
		`	if best == nil {
		for _, group := range groups {`, `	best = w.dirs[0]
	if best == nil {
		for _, group := range groups {`}}},
	{name: "count_unsure_refusals", what: "one refusal of a forwarded command counts for its earlier tries, too", in: "sim", found: "TestExactlyOnce", args: "-duplicates 60", edits: []edit{{"host/internal/proposals/route.go",
		`if r.Sure {
				c.live--`, `if true {
				c.live--`}, {"host/internal/proposals/route.go",
		`case c.live > 0:
				c.retryAt`, `case false:
				c.retryAt`}}},
	{name: "vote_waits", what: "a full disk refuses term and vote with the entries before them", in: "sim", found: "TestElectionBesideAFullDisk", args: "-elections 20", edits: []edit{{"host/internal/appendlane/hardstate.go",
		`	newest, early := q.DequeueEarly()
	if len(early) == 0 &&`, `	if true {
		return false
	}
	newest, early := q.DequeueEarly()
	if len(early) == 0 &&`}}},
	{name: "overtake_commit", what: "the newest commit index is written with the term and vote that overtake what a full disk refuses", in: "sim", found: "TestSeeds", args: "-first 60 -seeds 440 -failures 1", edits: []edit{{"host/internal/appendlane/hardstate.go",
		`Commit: q.durable.hs.Commit}`, `Commit: newest.Commit}`}}},
	{name: "parallel_sends_last", what: "in pipeline parallel the appends leave when the turn ends, after the leader's own write", in: "host", found: "TestWhatIsSentBeforeTheDiskIsWritten", edits: []edit{{"host/shards.go",
		`g.work.outgoing.To = g.senderOf(out.(*workerOutbox))`, `g.work.outgoing.To = out.(*workerOutbox)`}}},
	{name: "renumber_retries", what: "a host gives a forwarded command a new number for each try", in: "sim", found: "TestExactlyOnce", args: "-duplicates 20", edits: []edit{{"host/internal/proposals/retries.go",
		`if c.number == 0 {
		if len(s.window)`, `if c.number == 0 || c.tries > 0 {
		if len(s.window)`}}},
	{name: "bear_other_options", what: "a member goes on although its bounds of sessions differ from those of a majority", in: "host/internal/divergence", found: "TestAnOrderToStop", also: []judge{{in: "sim", test: "TestDivergence", says: "has not stopped"}}, edits: []edit{{"host/internal/divergence/stop.go",
		`return m.Stops || in == event.DivergedOptions`, `return m.Stops`}}},
	{name: "encode_then_refuse", what: "a command whose codec knows that it is too large is encoded before it is refused", in: ".", found: "TestTooLargeIsNotEncoded", edits: []edit{{"codecsize.go",
		`	if !ok {
		return nil
	}
	least`, `	if !ok || true {
		return nil
	}
	least`}}},
	{name: "receive_nothing_large", what: "a host drops messages that are larger than their share of its memory", in: "host", found: "TestOneThingLargerThanTheWhole", also: []judge{{in: "sim", test: "TestLoweredMemory", args: "-lowerings 1", says: "has not elected a leader, committed and converged"}}, edits: []edit{{"host/internal/budget/budget.go",
		`for n > b.Max/2 {`, `for n > b.Max/2 && false {`}}},
	{name: "broken_reader_keeps_upload", what: "an upload whose reader panics is never aborted", in: "host", found: "TestUploadOfABrokenReader", edits: []edit{{"host/upload.go",
		`		if !whole {
			err = errors.Join(`, `		if !whole && err != nil {
			err = errors.Join(`}}},
	{name: "events_function_ends_all", what: "a panic in the function of WithEvents is not recovered", found: "TestUserFunctions", in: ".", edits: []edit{{"host/internal/reports/events.go",
		`containment.Call("the function of WithEvents", func() error { h.call(e); return nil }, &ended)`, `func() error { _ = containment.Call; h.call(e); return nil }()`}}},
	{name: "caller_ends_all", what: "a panic in Committed of a Caller is not recovered", found: "TestUserFunctionsOfHosts", in: "host", edits: []edit{{"host/usercode.go",
		`defer func() { g.callerEnded("Committed", recover(), returned) }()`, `defer func() { g.callerEnded("Committed", nil, returned) }()`}}},
	{name: "tls_function_ends_all", what: "a panic in a function of TLS is not recovered while the transport works", found: "TestUserFunctionsOfTLS", in: "transport/tcp", edits: []edit{{"transport/tcp/usercode.go",
		`			if p := recover(); p != nil {`, `			if p := any(nil); p != nil {`}}},
	{name: "goexit_keeps_group", what: "OpenGroup keeps the id of a group reserved if its machine ends the goroutine", found: "TestGoexitInOpenGroup", in: "host", edits: []edit{{"host/groups.go",
		`if !made {`, `if !made && recover() != nil {`}}},
}
