package planted_test

// verdictBugs are bugs in what a host says of the health of its groups.
var verdictBugs = []bug{
	{name: "removed_refused", what: "Founding names a removed member's host among those that are refused", in: "host", found: "TestRemovedHostIsForgotten", edits: []edit{{"host/foundingstatus.go",
		`!g.members.HasRemoved(id)`, `true`}}},
	{name: "removed_dialed", what: "a removed host is dialed for ever", in: "host", found: "TestRemovedHostIsForgotten", edits: []edit{{"host/peers.go",
		`if t, dials := h.network.transport.(demandDialer); dials {`, `if t, dials := h.network.transport.(demandDialer); false && dials {`}}},
	{name: "welcome_untold", what: "a refusal of this host's directory does not end when the other host admits it", in: "host", found: "TestRefusalEndsWithAWelcome", edits: []edit{{"host/handshakes.go",
		`func (h *inbound) AdmittedBy(by uint64) {
	if p`, `func (h *inbound) AdmittedBy(by uint64) {
	by = 0
	if p`}}},
	{name: "follower_guesses", what: "a follower says which members are there by what it has heard itself in this life", in: "host", found: "TestFollowerAsksWhoIsThere", edits: []edit{{"host/leaderview.go",
		`	if v := g.view(); v != nil {
		return slices`, `	if v := g.view(); false && v != nil {
		return slices`}}},
	{name: "settings_untold", what: "hosts do not tell each other their timeouts when they meet", in: "host", found: "TestSettingsThatDiffer", edits: []edit{{"host/handshakes.go",
		`		h.tellAddresses(from, h.others())
		h.tellSettings(from)
`, `		h.tellAddresses(from, h.others())
`}}},
	{name: "settings_asked_late", what: "a host that has not said how it is set is asked once in two election timeouts from the beginning", in: "host", found: "TestSettingsAreAskedForSoon", edits: []edit{{"host/greetings.go",
		`if rarely || now-p.HeardSince.Load() <= two {`, `if rarely {`}}},
	{name: "joint_is_one_majority", what: "Explain takes most of all voters for a quorum of a joint configuration", in: "host/internal/examination", found: "TestExplainCountsVoters", also: []judge{{in: "host/internal/examination", test: "TestWaitingNamesTheHalfWithoutQuorum"}}, edits: []edit{{"host/internal/examination/quorum.go",
		`if r := f.Roster; r != nil {
		return r.Spare`, `if r := f.Roster; false && r != nil {
		return r.Spare`}}},
	{name: "snapshot_is_a_stalled_disk", what: "a leader says of a follower that is sent a snapshot for long that its disk stalls", in: "host", found: "TestEachCauseBeginsAndEnds", also: []judge{{in: "host/internal/examination", test: "TestViewOfAMemberThatNeedsASnapshot"}}, edits: []edit{{"host/internal/examination/members.go",
		`case v.Snapshot > 0 && (`, `case false && (`}, {"host/internal/examination/followers.go",
		`v.Snapshot, v.SnapshotAt = pr.PendingSnapshot, now`, `v.Snapshot, v.SnapshotAt = 0, now`}}},
	{name: "learner_counts", what: "Explain says of a learner that is down that one member less can fail", in: "host/internal/examination", found: "TestUnreachableLearnerIsNoLoss", edits: []edit{{"host/internal/examination/members.go",
		`if !slices.Contains(e.voters(), id) {`, `if false {`}}},
	{name: "founders_are_there", what: "a member of a group that is not founded says that a leader is being elected while founders are down", in: "host", found: "TestExplainNamesFoundersThatWentDown", edits: []edit{{"host/foundingstatus.go",
		`f.Silent = g.silentMembers()`, `f.Silent = nil`}}},
	{name: "founder_knows_no_leader", what: "a follower of a leader that founds says that a leader is being elected", in: "host", found: "TestExplainOfAFounderThatStartsAgain", edits: []edit{{"host/foundingstatus.go",
		`f.Leader = g.Status().Leader`, `f.Leader = 0`}}},
	{name: "founders_are_not_asked", what: "founders that may not vote yet do not ask each other whether they are alive", in: "host", found: "TestFounderAsksWhetherOthersAreAlive", edits: []edit{{"host/internal/founding/duty.go",
		`		f.w.AskSilent()
`, ``}}},
	{name: "slow_disk_is_well", what: "Explain names no disk whose every write takes longer than an election timeout", in: "host", found: "TestEachCauseBeginsAndEnds", also: []judge{{in: "sim", test: "TestExplain"}}, edits: []edit{{"host/internal/examination/watch.go",
		`before.Busy && w.disk.Done != before.Done {`, `false && before.Busy && w.disk.Done != before.Done {`}, {"host/internal/examination/disk.go",
		`d.Stalls && e.Now-d.StallsAt > e.Bounds.Election {`, `d.Stalls && e.Now-d.StallsAt > 1000*e.Bounds.Election {`}}},
	{name: "tolerance_is_a_stall", what: "a leader says that the disk of a follower stalls that takes less than StallTimeout", in: "host/internal/examination", found: "TestEachCause", also: []judge{{in: "host", test: "TestEachCauseBeginsAndEnds"}}, edits: []edit{{"host/internal/examination/members.go",
		`max(2*e.Bounds.Wait(), e.Bounds.Stall+e.Bounds.Wait()):`, `2*e.Bounds.Wait():`}}},
	{name: "stuck_snapshot_unnamed", what: "Explain does not name a directory of a snapshot that stays until the host is started again", in: "host", found: "TestExplainNamesAStuckSnapshot", also: []judge{{in: "host", test: "TestEachCauseBeginsAndEnds"}}, edits: []edit{{"host/internal/examination/examine.go",
		`	(*examination).findStuckSnapshots,
`, ``}}},
	{name: "token_names_no_ca", what: "a join token that is made while the certificate cannot be read names no CA", in: "host", found: "TestNoJoinTokenWithoutTheCertificate", edits: []edit{{"host/jointoken.go",
		`ca, err := g.host.issuer()
	if err != nil {`, `ca, err := g.host.issuer()
	if err != nil && false {`}}},
	{name: "pause_is_illness", what: "a group whose process was paused is not healthy", in: "host", found: "TestExplainWarns", edits: []edit{{"host/diagnosis/code.go",
		`case CodePaused, Code`, `case Code`}}},
	{name: "token_untold", what: "a host that is refused does not learn what is wrong with its token", in: "host", found: "TestRefusedTokenIsToldWhereItCame", edits: []edit{{"host/admit.go",
		`(*Host)(h).tokenRefusal(peer.ID); why != ""`, `(*Host)(h).tokenRefusal(peer.ID); false && why != ""`}}},
	{name: "token_untold_by_followers", what: "only the leader tells a host that is refused what is wrong with its token", in: "host", found: "TestRefusedTokenIsToldWhereItCame", edits: []edit{{"host/applicants.go",
		`if r := g.roster(); r != nil && g.Err() == nil && !g.members.IsLeaderSilent(`, `if r := g.roster(); false && r != nil && g.Err() == nil && !g.members.IsLeaderSilent(`}}},
	{name: "refused_for_long", what: "a host that was refused is named for 20 election timeouts after it has gone", in: "sim", found: "TestRests", args: "-rest-seeds 1", says: "names a cause: ", edits: []edit{{"host/internal/examination/facts.go",
		`	refusedTimeouts = 8
`, `	refusedTimeouts = 20
`}}},
	{name: "full_disk_for_long", what: "a snapshot that found no space is tried again after up to 256 election timeouts", in: "host", found: "TestSpaceThatComesBackEndsTheCause", also: []judge{{in: "sim", test: "TestSeedsWithCauses", says: "names a cause: "}}, edits: []edit{{"host/internal/snapshots/group.go",
		`		most = maxFullBackoff
`, `		most = maxBackoff
`}}},
	{name: "full_disk_filled_again", what: "each try of a snapshot fills a disk again that has no more space than before", in: "host", found: "TestNoTryFillsTheDiskForNothing", edits: []edit{{"host/internal/snapshots/take.go",
		`free <= s.tooLittle+s.tooLittle/8`, `false`}}},
	{name: "callers_failure_stays", what: "a snapshot that failed for a caller is a cause until the next one, of a group that takes none by itself", in: "host", found: "TestAFailedSnapshotOfACallerIsNamedForAWhile", edits: []edit{{"host/internal/examination/disk.go",
		`if s.Disabled && e.Now-s.FailedAt`, `if false && e.Now-s.FailedAt`}}},
	// The simulation does not find it any more (60 seeds of TestChurn, 12 of TestRests, TestIdleGroups): all
	// turns of a leader must fall on the ticks at which its core counts the quorum.
	{name: "idle_leader_forgets", what: "Explain of a leader without anything to do does not see that followers answer its pulses", in: "host", found: "TestQuietLeaderSeesThatFollowersAnswer", edits: []edit{{"host/pulse.go",
		`	views.Hear(heard, int64(g.host.config.electionTicks()))
`, ``}}},
	{name: "idle_leader_forgets_before_check", what: "a leader whose turns fall on its checks of the quorum does not see the answers of before", in: "host", found: "TestQuietLeaderSeesAnswersOfBeforeItsCheck", edits: []edit{{"host/pulse.go",
		`min(quiet.activeAt, views.At())`, `quiet.activeAt`}}},
}
