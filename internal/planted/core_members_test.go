package planted_test

// memberBugs are bugs in changes of the members.
var memberBugs = []bug{
	{name: "campaign_before_apply", what: "a node campaigns before it has applied a committed change of members", in: "raft", found: "TestStories", edits: []edit{{"raft/candidate.go",
		`r.term < maxTerm && !r.hasUnappliedConfChange()`, `r.term < maxTerm`}}},
	{name: "change_before_own_term", what: "a new leader proposes a change of members before it has applied what it found", in: "raft", found: "TestStories", edits: []edit{{"raft/leader.go",
		`		pendingConf: last,`, `		pendingConf: 0 * last,`}}},
	{name: "two_changes_at_once", what: "a leader proposes a change of members while the one before it is not applied", in: "raft", found: "TestStories", edits: []edit{{"raft/membership.go",
		`	case l.pendingConf > applied:`, `	case l.pendingConf > applied+1<<40:`}}},
	{name: "conf_stays_after_snapshot", what: "a node keeps its configuration when it installs a snapshot", in: "sim/core", found: "TestSeeds", args: "-seeds 100", edits: []edit{{"raft/snapshot.go",
		`	r.conf = config
`, `	_ = config
`}}},
	{name: "superseded_change_counts", what: "a change that a snapshot has overtaken changes the configuration of the snapshot", in: "raft", found: "TestStories", edits: []edit{{"raft/membership.go",
		`	case r.superseded != nil:
		r.superseded = &next`, `	case r.superseded != nil:
		r.conf = next`}}},
	{name: "truncated_change_waits", what: "a change of members that was cut off the log still waits to be applied", in: "raft", found: "TestRandomHistoriesOfMembers", args: "-seeds 40", edits: []edit{{"raft/log.go",
		`		l.changes.truncate(entries[0].Index)
`, ``}}},
	{name: "two_voters_at_once", what: "a simple change may change two voters", in: "raft/confchange", found: "TestReasonsToRefuse", edits: []edit{{"raft/confchange/confchange.go",
		`difference(c.Tracker.Voters[0], d.incoming) > 1`, `difference(c.Tracker.Voters[0], d.incoming) > 2`}}},
	{name: "joint_without_old_voters", what: "a joint configuration asks the new voters only", in: "raft/confchange", found: "TestEveryStepOverlapsAndLeavesItsInputAlone", edits: []edit{{"raft/confchange/confchange.go",
		`	d.outgoing, d.autoLeave = d.incoming.clone(), autoLeave
	if err := d.apply(changes); err != nil {`, `	d.autoLeave = false
	if err := d.apply(changes); err != nil {`}}},
	{name: "joint_for_ever", what: "a joint configuration is not left by itself", in: "raft", found: "TestJointConfigurationIsLeftAfterATransfer", edits: []edit{{"raft/membership.go",
		`if !r.conf.AutoLeave ||`, `if true ||`}}},
	{name: "removed_leader_leads", what: "a leader that was removed leads on", in: "raft", found: "TestStories", edits: []edit{{"raft/leader.go",
		`		case !r.promotable():
			// This`, `		case false:
			// This`}}},
	{name: "readded_keeps_progress", what: "a member that is removed and added in one change keeps what was known of it", in: "raft/confchange", found: "TestViewsFollowTheirMembers", edits: []edit{{"raft/confchange/draft.go",
		`	if !d.outgoing.has(id) {
		delete(d.views, id)`, `	if false {
		delete(d.views, id)`}}},
}
