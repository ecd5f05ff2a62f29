package planted_test

// takeBugs are bugs in what a host does with snapshots.
var takeBugs = []bug{
	{name: "take_put_off_for_ever", what: "a snapshot that was put off for an install is not taken later", in: "host", found: "TestATakeThatWasPutOff", edits: []edit{{"host/internal/snapshots/group.go",
		`	s.Lanes.InspectLater(&s.Seat, s.Heartbeat)
`, ``}}},
	{name: "older_snapshot_taken", what: "a member takes a snapshot of its own that is not newer than one that it has received", in: "host", found: "TestASnapshotThatFails", edits: []edit{{"host/internal/snapshots/take.go",
		`	case p != nil && id.Index <= p.ID.Index:`, `	case false:`}}},
	{name: "take_before_added", what: "a member that reads in the log how it was added takes a snapshot from before that", in: "host", found: "TestNoSnapshotFromBeforeAMemberWasAdded", edits: []edit{{"host/internal/snapshots/take.go",
		`early := !s.owner.MayCapture(id.Index)`, `early := !s.owner.MayCapture(id.Index) && false`}}},
	{name: "conf_of_the_log_stays", what: "after an install a member that starts again has the configuration that its log had", same: "the roster in the snapshot sets the same configuration", edits: []edit{{"host/install.go",
		`	g.writes.storage.Conf = answer.Snapshot.Metadata.ConfState
`, ``}}},
	{name: "roster_stays_after_install", what: "a member keeps its roster when it installs a snapshot", in: "sim", found: "TestChurn", args: "-first 60 -churns 10", edits: []edit{{"host/install.go",
		`		g.adoptRoster(block.Roster)
`, `		_ = block.Roster
`}}},
	{name: "offer_refused_in_silence", what: "a member whose machine or pipeline can use no snapshot refuses each offer, and its log says nothing", in: "host/internal/snapshots", found: "TestOffers", edits: []edit{{"host/internal/snapshots/reception.go",
		`			repeats, said = s.rejects.Admit(now)
`, `			_ = now
`}}},
	{name: "refused_and_healthy", what: "Explain of a member that needs a snapshot and can use none says healthy", in: "host", found: "TestEachCauseBeginsAndEnds", edits: []edit{{"host/internal/snapshots/reception.go",
		`			s.refused.Store(r)`, `			_ = r`}}},
	{name: "refused_for_ever", what: "Explain names a snapshot that was refused although its entries have come", in: "host", found: "TestEachCauseBeginsAndEnds", edits: []edit{{"host/internal/snapshots/reception.go",
		`r != nil && s.owner.NeedsSnapshot(r.Index) {`, `r != nil {`}}},
}
