package planted_test

// replicationBugs are bugs in replication: appends, acknowledgements, the commit index, apply, snapshots.
var replicationBugs = []bug{
	{name: "ack_before_disk", what: "a follower acknowledges entries before they are durable", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/outbox.go",
		`if speaksOfUndurableState(m.Type) {`, `if speaksOfUndurableState(m.Type) && m.Type != raftpb.MsgAppResp {`}}},
	{name: "own_entries_count_at_once", what: "a leader counts its own entries before they are durable", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/leader.go",
		`	r.out.ownAck = raftpb.EntryID{Term: r.term, Index: r.log.lastIndex()}`, `	if own := r.leader.members.Get(r.id); own != nil {
		own.MaybeUpdate(r.log.lastIndex())
		r.advanceCommit()
	}`}}},
	{name: "old_entries_count_at_once", what: "a new leader counts the entries that it found before they are durable", same: "a node asks for votes when all that it was handed is durable, so a new leader has nothing else", edits: []edit{{"raft/leader.go",
		`own.Match = r.log.durable()`, `own.Match = last`}}},
	{name: "half_commits", what: "half of the voters commit an entry", in: "sim/core", found: "TestSeeds", args: "-seeds 100", also: []judge{{in: "sim", test: "TestSeeds", args: "-seeds 40 -failures 1", says: "but after a crash with"}}, edits: []edit{{"raft/quorum/quorum.go",
		`acked[len(acked)-Size(len(acked))]`, `acked[len(acked)-(len(acked)+1)/2]`}}},
	{name: "old_half_commits", what: "in a joint configuration the more advanced half commits an entry", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/tracker/jointvoters.go",
		`return min(v.half(0, members), v.half(1, members))`, `return max(v.half(0, members), v.half(1, members))`}}},
	{name: "commit_one_more", what: "a leader commits one more entry than a quorum holds", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/commit.go",
		`held = uint64(r.leader.voters.CommittedIndex(r.leader.members))`, `held = min(uint64(r.leader.voters.CommittedIndex(r.leader.members))+1, r.log.lastIndex())`}}},
	{name: "commit_unverified", what: "a follower commits through the end of its log, whatever it has verified of it", in: "raft", found: "TestFollowerAnswersForWhatItHasVerified", edits: []edit{{"raft/follower.go",
		`commit := min(a.commit, verified)`, `commit := min(a.commit, r.log.lastIndex())`}}},
	{name: "heartbeat_commit_uncapped", what: "a heartbeat carries a commit index beyond what the follower has acknowledged", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/leader.go",
		`commit := min(pr.Match, r.log.committed)`, `commit := r.log.committed`}}},
	{name: "ack_whole_log", what: "a follower acknowledges its whole log, whatever it has verified of it", in: "raft", found: "TestFollowerAnswersForWhatItHasVerified", edits: []edit{{"raft/follower.go",
		`		r.acknowledge(from, verified)`, `		r.acknowledge(from, r.log.lastIndex())`}}},
	{name: "match_one_more", what: "a leader takes one more entry for acknowledged", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/tracker/progress.go",
		`p.Match, p.MsgAppFlowPaused = index, false
		if p.Next <= index {`, `p.Match, p.MsgAppFlowPaused = index+1, false
		if p.Next <= index+1 {`}, {"raft/tracker/progress.go",
		`			p.Next = index + 1`, `			p.Next = index + 2`}}},
	{name: "sent_is_acknowledged", what: "a leader takes what it has sent for acknowledged", in: "sim/core", found: "TestSeeds", args: "-seeds 300", edits: []edit{{"raft/tracker/progress.go",
		`			p.MsgAppFlowPaused = p.Inflights.Full()`, `			p.MsgAppFlowPaused, p.Match = p.Inflights.Full(), p.Next-1`}}},
	{name: "prev_term_unchecked", what: "a follower checks that it has the entry before an append, not the term of that entry", in: "sim/core", found: "TestSeeds", args: "-seeds 100", also: []judge{{in: "sim", test: "TestSeeds", args: "-seeds 20 -failures 1", says: "logs do not match at index"}}, edits: []edit{{"raft/follower.go",
		`if !r.log.matches(a.prev) {`, `if a.prev.Index > r.log.lastIndex() {`}}},
	{name: "old_append_truncates", what: "an append that comes late cuts off what the log has behind it", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/follower.go",
		`fresh := a.entries[r.log.firstConflict(a.entries):]`, `fresh := a.entries`}}},
	{name: "conflict_kept", what: "entries that conflict with those of the leader are kept", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/log.go",
		`		if !l.matches(entries[i].ID()) {`, `		if entries[i].Index > l.lastIndex() {`}}},
	{name: "appends_of_earlier_terms", what: "a member takes the appends of a deposed leader", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/gate.go",
		`	case m.Term < r.term:
		if m.Type`, `	case m.Term < r.term && m.Type != raftpb.MsgApp:
		if m.Type`}}},
	{name: "acks_of_earlier_terms", what: "an acknowledgement that was given to an earlier leader counts", in: "raft", found: "TestStories", edits: []edit{{"raft/gate.go",
		`	case m.Term < r.term:
		if m.Type`, `	case m.Term < r.term && m.Type != raftpb.MsgAppResp:
		if m.Type`}}},
	{name: "aba", what: "an answer of the disk about entries that were replaced counts for those in their place", in: "sim/core", found: "TestSeeds", args: "-first 1120 -seeds 20", edits: []edit{{"raft/unstable.go",
		`if ackTerm != u.ackTerm || index < u.offset`, `if index < u.offset`}}},
	{name: "late_answer_of_disk_lost", what: "an answer of the disk is ignored when later entries were handed out meanwhile", in: "raft", found: "TestUnstableLetsItsArrayGo", edits: []edit{{"raft/unstable.go",
		`if ackTerm != u.ackTerm || index < u.offset || index >= u.end() {`, `if ackTerm != u.ackTerm || index < u.offset || index >= u.end() || index+1 != u.inProgress {`}}},
	{name: "replaced_not_written", what: "entries that replace others that were handed out are not handed out", in: "sim/core", found: "TestSeeds", args: "-seeds 300", edits: []edit{{"raft/unstable.go",
		`	u.inProgress = min(u.inProgress, first)
`, ``}}},
	{name: "own_ack_of_earlier_term", what: "in synchronous mode a leader believes the acknowledgement of its own disk from its earlier term", same: "a node that has stepped down needs a Ready of its own before it leads again, and Advance comes before that", edits: []edit{{"raft/advance.go",
		`on.ownAck.Index > 0 && on.ownAck.Term == r.term &&`, `on.ownAck.Index > 0 && on.ownAck.Index <= r.log.lastIndex() &&`}}},
	{name: "compacted_is_term_0", what: "where the entry before an append is compacted, the leader sends term 0 in its place", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/replicate.go",
		`	if prev.Term, err = r.log.term(prev.Index); err != nil {`, `	if prev.Term, err = r.log.term(prev.Index); err != nil && prev.Index == 0 {`}}},
	{name: "no_snapshot_for_the_lost", what: "a leader whose log is compacted sends nothing to a follower that needs a snapshot", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/replicate.go",
		`return errors.Is(err, ErrCompacted) && r.sendSnapshot(to, pr)`, `return false`}}},
	{name: "uncommitted_unbounded", what: "a leader takes commands however many are not applied", in: "sim/core", found: "TestSeeds", args: "-seeds 300", edits: []edit{{"raft/leader.go",
		`held > 0 && p.bytes > 0 && held+p.bytes > r.cfg.maxUncommittedBytes`, `held > 0 && p.bytes > 0 && held+p.bytes > 64*r.cfg.maxUncommittedBytes`}}},
	{name: "refusal_takes_back", what: "a leader that has no space for a command takes its latest entry back, if no disk and no member has that yet", in: "sim/core", found: "TestSeeds", args: "-seeds 300", edits: []edit{{"raft/leader.go",
		`r.cfg.maxUncommittedBytes {
		return ErrProposalDropped`, `r.cfg.maxUncommittedBytes {
		last := r.log.lastIndex()
		free := last > r.leader.termStart && last >= r.log.unstable.inProgress
		for i := range r.leader.members {
			m := &r.leader.members[i]
			free = free && (m.ID == r.id || m.Progress.Next <= last)
		}
		if free {
			r.leader.uncommittedBytes -= r.log.held(r.log.unstable.slice(last, last+1))
			r.log.unstable.truncate(last)
			if r.out.ownAck.Index == last {
				r.out.ownAck.Index--
			}
		}
		return ErrProposalDropped`}}},
	{name: "compacted_is_a_failure", what: "a node stops when it asks its storage for the term of an entry that was compacted", in: "sim/core", found: "TestSeeds", args: "-seeds 300", edits: []edit{{"raft/log.go",
		`if !errors.Is(err, ErrCompacted) && !pending(err) {`, `if !pending(err) {`}}},
	{name: "snapshot_with_latest_conf", what: "a leader sends a snapshot with the members of now, not with those of its index", in: "sim/core", found: "TestSeeds", args: "-seeds 300", edits: []edit{{"raft/snapshot.go",
		`	pr.BecomeSnapshot(s.Metadata.Index)
	r.infof`, `	pr.BecomeSnapshot(s.Metadata.Index)
	s.Metadata.ConfState = r.conf.ConfState()
	r.infof`}}},
	{name: "lost_probe_is_final", what: "a probe that was lost is never sent again", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/leader.go",
		`	pr.MsgAppFlowPaused = false
	if pr.Match`, `	if pr.Match`}}},
	{name: "full_window_stays_full", what: "an acknowledgement does not make space in the window of a follower", in: "raft", found: "TestMaxInflightBytes", edits: []edit{{"raft/replicate.go",
		`		pr.Inflights.FreeLE(a.index)
`, ``}}},
	{name: "stale_ack_confirms_probe", what: "the answer to a stale append counts as the answer to a probe", in: "raft", found: "TestAnswerToAStaleAppendIsNoAcknowledgement", edits: []edit{{"raft/replicate.go",
		`confirmsProbe := a.index > 0 && pr.Match`, `confirmsProbe := pr.Match`}}},
	{name: "stale_rejection_rewinds", what: "a rejection from before the last acknowledgement begins a probe", in: "raft", found: "TestStaleRejectionMovesNothing", edits: []edit{{"raft/tracker/progress.go",
		`if rejected > p.Match {`, `if rejected > 0 {`}}},
	{name: "failed_snapshot_waits", what: "a snapshot that failed is not sent again", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/snapshot.go",
		`if pr == nil || pr.State != tracker.StateSnapshot {`, `if pr == nil || pr.State != tracker.StateSnapshot || failed {`}}},
	{name: "snapshot_keeps_log", what: "a snapshot does not replace a log that conflicts with it", in: "raft", found: "TestSnapshotThatIsNotNeeded", edits: []edit{{"raft/snapshot.go",
		`	case r.log.matches(raftpb.EntryID{Term: s.Metadata.Term, Index: index}):`, `	case index <= r.log.lastIndex():`}}},
	{name: "snapshot_contradiction_taken", what: "a snapshot that contradicts a committed entry is acknowledged", in: "raft", found: "TestSnapshotThatContradictsWhatIsCommitted", edits: []edit{{"raft/snapshot.go",
		`case r.log.contradictsCommitted(id) || r.log.fallsBehindCommitted(id):`, `case false:`}}},
	{name: "append_contradiction_taken", what: "an append that contradicts a committed entry is acknowledged", in: "raft", found: "TestPeerErrors", edits: []edit{{"raft/follower.go",
		`	if r.log.contradictsCommitted(a.prev) {`, `	if false {`}, {"raft/follower.go",
		`		if id := a.entries[i].ID(); r.log.contradictsCommitted(id) {`, `		if id := a.entries[i].ID(); false {`}}},
	{name: "lost_log_panics", what: "a commit index beyond the end of a log that was lost is not refused", in: "raft", found: "TestPeerErrors", edits: []edit{{"raft/follower.go",
		`if last := r.log.lastIndex(); commit > last {`, `if last := r.log.lastIndex(); commit > last && false {`}}},
	{name: "apply_before_disk", what: "a node hands out entries for apply before they are durable on it", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/applying.go",
		`	return min(l.committed, l.durable())`, `	return l.committed`}}},
	{name: "apply_again", what: "the last entry of a batch is handed out again", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/applying.go",
		`	l.applying = batch.through
`, `	l.applying = max(batch.through, l.applying+2) - 1
`}}},
	{name: "change_before_disk", what: "a volatile state machine gets a change of members before it is durable", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/applying.go",
		`		return min(l.committed, l.changes.next(l.durable()+1)-1)`, `		return l.committed`}}},
	{name: "snapshot_counts_at_once", what: "a snapshot that was received is acknowledged before it is durable", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/snapshot.go",
		`	r.send(r.withStanding(raftpb.Message{Type: raftpb.MsgAppResp, To: from, Index: r.log.committed}))
	return nil`, `	m := r.withStanding(raftpb.Message{Type: raftpb.MsgAppResp, To: from, From: r.id, Term: r.term, Index: r.log.committed})
	*r.out.now.next() = m
	return nil`}}},
	{name: "commit_back_after_restart", what: "a restart forgets the commit index", in: "raft", found: "TestRestart", edits: []edit{{"raft/raft.go",
		`	l.committed = max(l.committed, hs.Commit)
`, `	_ = hs.Commit
`}}},
	{name: "follower_goes_back", what: "a follower takes over the commit index of its leader also if it is lower", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/follower.go",
		`	if r.log.commitTo(commit); !saysNothingNew {`, `	if r.log.committed = commit; !saysNothingNew {`}}},
	{name: "hung_disk_queues", what: "a follower whose disk hangs queues a write for every append that is repeated", in: "raft", found: "TestFollowerWithAHungDiskQueuesNoAnswersTwice", edits: []edit{{"raft/follower.go",
		`return waits.sameAuthor(now) && index <= waits.index`, `return waits.sameAuthor(now) && index == 0 && index <= waits.index`}}},
	{name: "tiny_entries_free", what: "the bound on what is not committed counts payload only", in: "raft", found: "TestTailBehindAHungDiskIsBounded", edits: []edit{{"raft/log.go",
		`return uint64(entries) * l.overheadBytes`, `return 0 * uint64(entries) * l.overheadBytes`}}},
	{name: "arrays_stay_long", what: "after a long batch of messages all later batches are cut from long arrays", in: "raft", found: "TestArenaIsAQueueOfBatchesThatNeverChange", edits: []edit{{"raft/messagearena.go",
		`a.length = min(4*n, maxArena)`, `a.length = 4 * n`}, {"raft/messagearena.go",
		`left < n || n+left > maxArena ||`, `left < n ||`}}},
	{name: "idle_is_behind", what: "a node that has nothing to say takes itself for one whose consumer is behind", in: "raft/etcdnode", found: "TestAnIdleLeaderIsNotBehind", edits: []edit{{"raft/etcdnode/ready.go",
		`		n.backlogBytes = 0 // the`, `		n.backlogBytes += 0 // the`}}},
	{name: "range_repeats_one", what: "a range of entries for apply begins with the last one of the range before", in: "sim/core", found: "TestSeeds", args: "-seeds 300", edits: []edit{{"raft/asyncstorage.go",
		`		m.Index, m.Commit, ack.Index = w.after, w.through, w.through`, `		m.Index, m.Commit, ack.Index = max(w.after, 1)-1, w.through, w.through`}}},
	{name: "handed_out_is_durable", what: "what was handed out for writing counts as durable", in: "sim/core", found: "TestSeeds", args: "-seeds 300", edits: []edit{{"raft/log.go",
		`	return l.unstable.offset - 1
`, `	return l.unstable.inProgress - 1
`}}},
	{name: "commit_index_of_the_disk", what: "the status tells no commit index beyond what is durable, and so goes back when a snapshot replaces the log", in: "sim/core", found: "TestSeeds", args: "-seeds 300", edits: []edit{{"raft/status.go",
		`		Durable:   r.log.durable(),
	}
`, `		Durable:   r.log.durable(),
	}
	s.Commit = min(s.Commit, s.Durable)
`}}},
}
