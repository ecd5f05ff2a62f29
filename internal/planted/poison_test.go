package planted_test

// Bugs about commands that a state machine cannot apply.
var poisonBugs = []bug{
	{name: "snapshot_of_replaced_entries", what: "a member whose log lost the entries behind its snapshot in a power cut, and has those that they had replaced, cannot start", in: "host/internal/snapshots", found: "TestInterruptedInstalls", edits: []edit{{"host/internal/snapshots/open.go",
		`	return err == nil && term < id.Term
`, `	return err == nil && term < id.Term && term == 0
`}}},
	{name: "refused_try_is_the_last", what: "a snapshot that failed, and whose next try finds the machine halted, is not tried again in a group that applies nothing more", in: "host/internal/snapshots", found: "TestARefusedTryIsMadeAgain", edits: []edit{{"host/internal/snapshots/group.go",
		`s.Schedule(s.Growth.Applied()); again {`, `s.Schedule(s.Growth.Applied()); false && again {`}}},
	{name: "halted_gets_what_the_log_has", what: "a halted machine forgets a committed entry for which its log has another leader's, and is given that", in: "host/internal/apply", found: "TestAHaltedMachineGetsWhatIsCommitted", edits: []edit{{"host/internal/apply/halt.go",
		`n > 0 && !q.holds(m.Entries[n-1].ID())`, `n > 0 && last > q.Log.LastIndex()`}}},
	{name: "rebuilt_of_another_leader", what: "a machine is made again from entries that its log does not have yet, or has of another leader", in: "host/internal/apply", found: "TestRebuildWaitsForTheLog", edits: []edit{{"host/internal/apply/rebuild.go",
		`had.Index > q.rebuildTo && !q.holds(had)`, `had.Index > q.rebuildTo && had.Index > q.Log.LastIndex()`}}},
	{name: "codec_not_tried", what: "a command that its codec cannot decode is proposed", in: ".", found: "TestCommandThatDoesNotComeBackIsNotProposed", edits: []edit{{"machine.go",
		`return Machine[C, R]{sm: sm, codec: codec, tries: !isSure(codec)}`, `return Machine[C, R]{sm: sm, codec: codec}`}}},
	{name: "poison_stops_the_group", what: "a command that the state machine cannot apply stops the group, on every member", in: "host", found: "TestFailureStopsOneGroup", edits: []edit{{"host/internal/apply/round.go",
		`		q.halt(halted)
		return
	}
	q.failed = true`, `		q.member.Fail(halted)
		return
	}
	q.failed = true`}}},
	{name: "skip_after_the_effect", what: "a member that has applied a command goes on behind the entry that skips it", in: "host", found: "TestSkipIsTakenByEveryMember", edits: []edit{{"host/internal/apply/skip.go",
		`|| s.At.Index >= e.Index || slices.Contains(q.passed, s.At) {`, `|| s.At.Index >= e.Index || true {`}}},
	{name: "skip_is_a_difference", what: "members are said to differ when one of them does not know yet that a command is skipped", in: "host/internal/apply", found: "TestSkippedCommandsAreNotCompared", edits: []edit{{"host/internal/apply/commands.go",
		`	if s.queue.Skips.IsOpen(index) {`, `	if s.queue.Skips.IsOpen(0) {`}}},
	{name: "held_skip_is_not_summed", what: "a machine on disk with the effect of a skipped command is said to have other commands", in: "host/internal/apply", found: "TestSkippedCommandsAreNotCompared", edits: []edit{{"host/internal/apply/commands.go",
		`			isDue := s.passBy(e)
`, `			isDue := e.Index > s.held && s.passBy(e)
`}}},
	{name: "snapshot_in_a_skip", what: "a snapshot between a skipped command and its entry makes members look different that have not learned of the entry yet", in: "host", found: "TestNoSnapshotBetweenASkippedCommandAndItsEntry", edits: []edit{{"host/snapshots.go",
		`	if g.machine.apply.Skips.IsOpen(index) {`, `	if false {`}}},
	{name: "skip_without_a_halt", what: "a leader skips a command that its machine has applied", in: "host", found: "TestPoisonCommandIsSkipped", edits: []edit{{"host/skip.go",
		`	if err := g.rejectSkip(s.At, g.leadership.leader.IsAhead); err != nil {`, `	if err := error(nil); err != nil {`}}},
	{name: "suspects_together", what: "after a start the commands of which one has halted the machine are one batch again", in: "host", found: "TestSuspectCommandsAreAppliedOneByOne", edits: []edit{{"host/internal/apply/note.go",
		`q.note.First <= index && index <= q.note.Last`, `false && index > 0`}}},
	{name: "suspect_state_goes_on", what: "a machine that is made again from a snapshot keeps the state in which it has halted", in: "sim", found: "TestDivergence", args: "-divergences 6", says: "poison", edits: []edit{{"host/internal/apply/rebuild.go",
		`	if err := restore(); err != nil {
`, `	if err := error(nil); err != nil {
`}}},
	{name: "halted_machine_holds_the_core", what: "a core learns only from its machine what is applied, so members with halted machines cannot campaign over a membership change", in: "host", found: "TestHaltedMachineDoesNotHoldTheCore", edits: []edit{{"host/internal/apply/halt.go",
		`	if len(answers) > 0 {
		q.member.Done(0, answers)`, `	if len(answers) > 1<<30 {
		q.member.Done(0, answers)`}}},
	{name: "snapshot_leaves_the_halt", what: "a machine that is halted stays so although a snapshot behind the command was installed", in: "host", found: "TestHaltedMachineInstalls", edits: []edit{{"host/internal/apply/halt.go",
		`			q.resume()
			return true
		}
		return false`, `			return true
		}
		return false`}}},
	{name: "skip_of_what_a_disk_keeps", what: "a member whose machine on disk has applied a command, and halted at a later one, counts as one that has not", in: "host/internal/apply", found: "TestWhatAHaltedMachineMayHaveApplied", edits: []edit{{"host/internal/apply/queue.go",
		`			if q.isOnDisk() {
				storeMax(&q.kept`, `			if q.isOnDisk() && m == 0 {
				storeMax(&q.kept`}}},
	{name: "skip_in_one_step", what: "a leader skips a command by one entry, which may be committed when members have applied the command after all", in: "host", found: "TestALeaderDecidesASkip", edits: []edit{{"host/skip.go",
		`	s.Step = entry.SkipHeld`, `	s.Step = entry.SkipInForce`}}},
	{name: "skip_without_answers", what: "a leader skips a command though no majority says that it waits", in: "host", found: "TestALeaderDecidesASkip", edits: []edit{{"host/skip.go",
		`err == nil && leader.LackWith(h.At.Index, h.By)`, `err == nil`}}},
	{name: "skip_never_given_up", what: "a command waits for ever if the members do not answer the leader that would skip it", in: "host", found: "TestALeaderDecidesASkip", edits: []edit{{"host/skip.go",
		`case err == nil && now < g.machine.decideBy:`, `case err == nil:`}}},
	{name: "skip_does_not_wait", what: "a member applies a command that the group may be about to skip", in: "host", found: "TestACommandWaitsForItsSkip", edits: []edit{{"host/internal/apply/hold.go",
		`is && q.applied.Load() < h.At.Index {`, `is && h.At.Index == 0 {`}}},
	{name: "skip_waits_for_ever", what: "a command waits for ever behind the first entry of a leader that is gone", in: "host", found: "TestACommandWaitsForItsSkip", edits: []edit{{"host/skip.go",
		`return !ok || term != h.Term || isLate ||`, `return !ok || term != h.Term || isLate && known && h.By == 0 ||`}}},
	{name: "skip_of_any_command", what: "a leader skips a command at which its machine is not halted", in: "sim", found: "TestPoison", args: "-poisonings 30", says: "has not elected a leader, committed and converged", edits: []edit{{"host/skip.go",
		`	if err := g.rejectSkip(s.At, g.leadership.leader.IsAhead); err != nil {
		return err`, `	if err := g.rejectSkip(s.At, g.leadership.leader.IsAhead); err != nil && err == nil {
		return err`}}},
	{name: "rebuild_leaves_out", what: "a machine that failed while it was made again from a snapshot goes on without the commands that it had", in: "host", found: "TestRebuildLeavesNothingOut", edits: []edit{{"host/internal/apply/rebuild.go",
		`	to := q.rebuildTo
`, `	to := q.through.Load()
`}}},
	{name: "rebuild_before_answers", what: "a machine is made again before the callers of the batch that halted it are told", in: "host", found: "TestRebuildTellsTheCallers", edits: []edit{{"host/internal/apply/halt.go",
		`	if q.halting.answered.Load() != q.halting.now.Load() {`, `	if q.halting.now.Load() == nil {`}}},
	{name: "rebuild_gives_up_without_descriptors", what: "a machine that finds no descriptor while it is made again stays halted", in: "host", found: "TestRebuildWithoutDescriptors", edits: []edit{{"host/internal/apply/rebuild.go",
		`		if vfs.IsShort(err) {`, `		if errors.As(err, new(retried)) && vfs.IsShort(err) {`}}},
	{name: "rebuild_for_ever", what: "a machine that halts again at a command that is skipped is made again for ever", in: "host", found: "TestDigestPanicsBehindASkip", edits: []edit{{"host/internal/apply/rebuild.go",
		`	if q.rebuilt == purpose {`, `	if q.rebuilt == (rebuildPurpose{by: 1}) {`}}},
	{name: "checkpoints_twice", what: "a machine that was made again reports its checkpoints twice, in a form that no leader reads", in: "host", found: "TestCheckpointsAscendAfterAHalt", edits: []edit{{"host/internal/divergence/divergence.go",
		`return o.Index >= c.Index })
	if len(d.own)`, `return o.Index > c.Index })
	if len(d.own)`}}},
	{name: "view_over_a_halt", what: "View counts what it has read of a machine that was made again meanwhile", in: ".", found: "TestReadThatAHaltOvertakes", edits: []edit{{"read.go",
		`n.group.Halted() == nil && n.group.Halts() == halts {`, `halts == halts {`}}},
	{name: "lease_over_a_halt", what: "a lease holds although the machine was made again meanwhile", in: ".", found: "TestReadThatAHaltOvertakes", edits: []edit{{"host/read.go",
		`!w.life.hasEnded.Load() && (*Group)(w).worksSince(halts)`, `!w.life.hasEnded.Load()`}}},
	{name: "passed_note_stops_the_group", what: "a group stops because it finds no descriptor to note which command its machine was not given", in: "host", found: "TestPassedCommandIsNotedLater", edits: []edit{{"host/internal/apply/skip.go",
		`vfs.IsShort(err) || identity.IsFull(err) {`, `err != nil && !vfs.IsShort(err) && !identity.IsFull(err) {`}}},
	{name: "passed_note_comes_late", what: "a machine on disk is not given a command that is skipped, and the note says so too late", in: "host", found: "TestPassedCommandIsNotedLater", edits: []edit{{"host/internal/apply/queue.go",
		`		if err := q.prepareSkips(q.unpacked); err != nil {`, `		if err := q.prepareSkips(nil); err != nil {`}}},
	{name: "batch_place_off_by_one", what: "the first command of a batch is said to be the second", in: "host/internal/apply", found: "TestABatchIsUnpacked", edits: []edit{{"host/internal/apply/queue.go",
		`		for pos := uint32(0); b.Len() > 0; pos++ {`, `		for pos := uint32(1); b.Len() > 0; pos++ {`}}},
	{name: "batch_skipped_whole", what: "a skipped command takes the other commands of its batch with it", in: "host/internal/apply", found: "TestPoisonInABatch", edits: []edit{{"host/internal/apply/skips.go",
		`return o.at.Compare(at) })`, `return cmp.Compare(o.at.Index, at.Index) })`},
		{"host/internal/apply/skips.go", `import (
	"errors"`, `import (
	"cmp"
	"errors"`}}},
	{name: "checkpoint_in_a_batch", what: "a checkpoint is taken in the middle of a batch", in: "host/internal/apply", found: "TestBatchesAreTheirCommands", edits: []edit{{"host/internal/apply/commands.go",
		`	due := s.due && !e.More`, `	due := s.due`}}},
	{name: "half_a_batch_on_disk", what: "a machine that keeps its state on disk gets a suspect batch in pieces", in: "host/internal/apply", found: "TestAMachineOnDiskGetsWholeBatches", edits: []edit{{"host/internal/apply/queue.go",
		` && (c.Pos == 0 || !onDisk) {`, ` && (c.Pos == 0 || onDisk) {`}}},
	{name: "batch_on_disk_in_pieces", what: "a machine on disk gets the commands of one entry one by one, and its power fails in between", in: "sim", found: "TestBatchEntries", args: "-packings 10", edits: []edit{{"host/internal/apply/queue.go",
		` && (c.Pos == 0 || !onDisk) {`, ` && (c.Pos == 0 || !onDisk) || n > 0 && onDisk && c.Pos > 0 {`}}},
	{name: "skip_splits_a_batch_on_disk", what: "a machine on disk gets what is before a skipped command of its entry in a call of its own", in: "host/internal/apply", found: "TestASkipDoesNotSplitABatchOnDisk", edits: []edit{{"host/internal/apply/queue.go",
		`(n == 0 || onDisk || q.Skips`, `(n == 0 || q.Skips`}}},
	{name: "bad_command_splits_a_batch_on_disk", what: "a machine on disk keeps what is before a command that no member can read, of the same entry", in: "host/internal/apply", found: "TestABadCommandDoesNotSplitABatchOnDisk", edits: []edit{{"host/internal/apply/commands.go",
		`s.batch[n-1].Index == e.Index {
		n--`, `s.batch[n-1].Index > e.Index {
		n--`}}},
	{name: "skip_shifts_results", what: "a skipped command of a batch takes the place of a result before it", in: "host/internal/apply", found: "TestASkipDoesNotSplitABatchOnDisk", edits: []edit{{"host/internal/apply/skip.go",
		`s.table.MarkRefused(h.Mark)
			s.unkept = append(s.unkept, len(s.batch))`, `s.table.Refuse(h.Mark)`}}},
	{name: "poison_on_disk_stays", what: "no leader skips a command of an entry on disk, as no start tells which it is", in: "host/internal/apply", found: "TestPoisonInABatchOnDisk", also: []judge{{in: "sim", test: "TestBatchEntries", args: "-first 15 -packings 1"}}, edits: []edit{{"host/internal/apply/halt.go",
		`	e.Undivided = q.isOnDisk()`, `	e.Undivided = !q.isOnDisk()`}}},
	{name: "batch_with_trailing_bytes", what: "bytes behind the last command of a batch are not refused", in: "raft/raftpb", found: "TestBadBatches", edits: []edit{{"raft/raftpb/batch.go",
		`	if len(rest) > 0 {
		return Batch{}, fmt`, `	if len(rest) > 1<<30 {
		return Batch{}, fmt`}}},
	{name: "batch_to_old_members", what: "a leader makes a batch although a member has not said that it reads batches", in: "host", found: "TestOneTurnIsOneEntry", also: []judge{{in: "sim", test: "TestSeeds", args: "-first 84 -seeds 1", says: "has never said that it reads such entries"}}, edits: []edit{{"host/offer.go",
		`if id != g.self && !g.host.readsBatches(id) {`, `if id != g.self && !g.host.readsBatches(id) && false {`}}},
	{name: "receipt_without_place", what: "the receipt of a command in a batch names the first one", in: "host", found: "TestOneTurnIsOneEntry", edits: []edit{{"host/internal/proposals/queue.go",
		`outcome.Receipt{Index: index, Pos: pos, Term: term}`, `outcome.Receipt{Index: index, Term: term}`}}},
	{name: "receipt_place_off_by_one", what: "the receipt of a command in a batch names the next one", in: "sim", found: "TestBatchEntries", args: "-packings 1", says: "is acknowledged at index", edits: []edit{{"host/internal/proposals/queue.go",
		`outcome.Receipt{Index: index, Pos: pos, Term: term}`, `outcome.Receipt{Index: index, Pos: pos + 1, Term: term}`}}},
	{name: "end_of_a_batch_not_applied", what: "the last command of a batch is answered, and no machine gets it", in: "sim", found: "TestBatchEntries", args: "-packings 1", says: "has applied the log through index", edits: []edit{{"host/internal/apply/queue.go",
		`		for pos := uint32(0); b.Len() > 0; pos++ {`, `		for pos := uint32(0); b.Len() > int(min(pos, 1)); pos++ {`}}},
	{name: "results_keep_commands", what: "a session keeps a result that is a part of its command, and with it the whole entry in memory", in: "host/internal/apply", found: "TestKeptResultsKeepNoCommands", edits: []edit{{"host/internal/apply/commands.go",
		`	return bytes.Clone(result)
`, `	_ = bytes.Clone(result)
	return result
`}}},
	{name: "withdrawal_not_noted", what: "a client is told that its command is withdrawn, and no turn learns of it", in: "sim", found: "TestBatchEntries", args: "-packings 2", says: "after its client was told that it never would be", edits: []edit{{"host/internal/proposals/waiter.go",
		`return w.phase.CompareAndSwap(waiterQueued, waiterWithdrawn) }`, `return w.phase.Load() == waiterQueued }`}}},
	{name: "forwards_to_old_members", what: "a leader joins forwarded commands although a member has not said that it reads batches", in: "host", found: "TestForwardedCommandsShareEntries", edits: []edit{{"host/offer.go",
		`if commands > 1 && g.packs() {`, `if commands > 1 && !g.host.config.SingleEntries {`}}},
	{name: "objects_in_a_batch", what: "a command that names objects shares its entry, and all members refuse it", in: "host", found: "TestForwardedCommandsShareEntries", also: []judge{{in: "sim", test: "TestBatchEntries", args: "-packings 10"}}, edits: []edit{{"host/callroute.go",
		`		s.Alone = isAboutObjects`, `		_ = isAboutObjects`}}},
	{name: "joined_without_the_last", what: "of forwarded commands that share an entry the last is lost", in: "host", found: "TestForwardedCommandsShareEntries", edits: []edit{{"host/internal/proposals/pack.go",
		`j.Join(rest[:n])`, `j.Join(rest[:n-1])`}}},
	{name: "result_without_place", what: "a result that comes before the commit has a receipt of the first command in its entry", in: "sim", found: "TestBatchEntries", args: "-first 54 -packings 1", says: "its command, has the result", edits: []edit{{"propose.go",
		`c.receipt.Index, c.receipt.Pos, c.receipt.Term = e.Index, e.Pos, e.Term`, `c.receipt.Index, c.receipt.Term = e.Index, e.Term`}}},
	{name: "rest_of_a_batch_waits", what: "clients of a batch of which the machine has some wait for ever when it halts", in: "host/internal/proposals", found: "TestTheRestOfABatchHears", edits: []edit{{"host/internal/proposals/end.go",
		`p.clients[p.next:] {`, `p.clients[:0] {`}}},
	{name: "batch_result_to_a_neighbour", what: "the result of a command in a batch goes to its neighbour", in: "host/internal/proposals", found: "TestQueueTwin", edits: []edit{{"host/internal/proposals/results.go",
		`p.clients[at.Pos].call`, `p.clients[(int(at.Pos)+1)%len(p.clients)].call`}}},
}
