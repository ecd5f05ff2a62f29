package planted_test

// Bugs about versions of a machine's behaviour.
var versionBugs = []bug{
	{name: "version_not_in_the_snapshot", what: "a snapshot does not say at which version its group is, so a member that begins with it applies commands at version 0", in: "sim", found: "TestUpgrades", says: "at version", edits: []edit{{"host/snapshots.go",
		`Skipped: q.Passed(), At: q.At(),`, `Skipped: q.Passed(),`}}},
	{name: "an_old_program_votes", what: "a learner becomes a voter though its program cannot do the version of the group", in: ".", found: "TestPromotionOfAnOldProgram", also: []judge{{in: "sim", test: "TestUpgrades", args: "-upgradings 3", says: "plans to promote host"}}, edits: []edit{{"host/programs.go",
		`known && !can.Can(at)`, `false && known && !can.Can(at)`}}},
	{name: "later_entries_are_passed_over", what: "a group is opened whose log has an entry of a later program, which this one does not know", in: ".", found: "TestLaterEntries", also: []judge{{in: "sim", test: "TestUpgrades", args: "-upgradings 3", says: "of a later program"}}, edits: []edit{{"host/rosters.go",
		`if e := &entries[i]; entry.RejectLater(e.Type, e.Data) != nil {`, `if e := &entries[i]; e.Type != raftpb.EntryHost && entry.RejectLater(e.Type, e.Data) != nil {`}}},
	{name: "later_entries_are_taken", what: "a log takes an entry of a later program from its leader", in: "sim", found: "TestUpgrades", args: "-upgradings 10", edits: []edit{{"host/receive.go",
		`if err := entry.Reject(e); err != nil {`, `if err := entry.Reject(e); err != nil && entry.RejectLater(e.Type, e.Data) == nil {`}}},
	{name: "frames_in_another_order", what: "hosts write and read the fields of a read question in another order than released versions", in: "host", found: "TestReleasedFrames", edits: []edit{{"host/internal/reads/record.go",
		`r.encode(control.ReadQuestion, r.Group, r.Life, r.Number)`, `r.encode(control.ReadQuestion, r.Group, r.Number, r.Life)`}, {"host/internal/reads/record.go",
		`		fields = fields[:3]`, `		fields = []*uint64{&r.Group, &r.Number, &r.Life}`}}},
	{name: "handshakes_in_another_order", what: "hosts write and read the fields of a verdict in another order than released versions", in: "transport/tcp", found: "TestReleasedHandshakes", edits: []edit{{"transport/tcp/hello.go",
		`	dst = binary.LittleEndian.AppendUint32(dst, uint32(v.code))
	dst = binary.LittleEndian.AppendUint32(dst, v.version)`, `	dst = binary.LittleEndian.AppendUint32(dst, v.version)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(v.code))`}, {"transport/tcp/hello.go",
		`verdict{code: verdictCode(binary.LittleEndian.Uint32(head[8:])), version: binary.LittleEndian.Uint32(head[12:])}`, `verdict{code: verdictCode(binary.LittleEndian.Uint32(head[12:])), version: binary.LittleEndian.Uint32(head[8:])}`}}},
	{name: "later_lives_are_overwritten", what: "a start replaces lives.json of a later version", in: ".", found: "TestLaterFiles", edits: []edit{{"host/internal/identity/lives.go",
		`case l.Version > livesVersion:`, `case l.Version > livesVersion+1:`}}},
	{name: "version_of_the_program", what: "a command has the highest version of the program that applies it, and not that of the log", in: "sim", found: "TestUpgrades", says: "at version", edits: []edit{{"host/internal/apply/commands.go",
		`version := s.queue.At().Version`, `version := s.Options.Versions.Highest`}}},
	{name: "learners_not_asked", what: "a leader begins a version that a learner's program cannot do", in: ".", found: "TestUpgradeAsksLearners", edits: []edit{{"host/versions.go",
		`	ids := g.memberIDs()
`, `	ids := g.roster().Conf.Voters
`}}},
	{name: "answers_of_before", what: "a leader counts what members have said before it was asked for a version", in: "host/internal/versions", found: "TestDecide", edits: []edit{{"host/internal/versions/group.go",
		`case a.number < g.wish.first:`, `case a.number == 0:`}}},
	{name: "nobody_is_asked", what: "a leader begins each version that it is asked for", in: "sim", found: "TestUpgrades", says: "no program of member", edits: []edit{{"host/internal/versions/group.go",
		`		if !a.said.Can.Can(u.To) {`, `		if false && !a.said.Can.Can(u.To) {`}}},
	{name: "wrong_version_goes_on", what: "a member whose program cannot do the version of the group applies commands", in: "sim", found: "TestUpgrades", says: "its program can do", edits: []edit{{"host/internal/apply/version.go",
		`	if can.Can(at.Version) {`, `	if can.Can(at.Version) || true {`}}},
	{name: "wrong_version_is_restored", what: "a machine is given a snapshot of a version that its program cannot do", in: ".", found: "TestSnapshotOfAWrongVersion", edits: []edit{{"host/snapshotopen.go",
		`isAble && (!commands ||`, `(isAble || true) && (!commands ||`}}},
	{name: "version_one_command_late", what: "the first command of a batch behind the entry has the version of before", in: "sim", found: "TestUpgrades", says: "at version", edits: []edit{{"host/internal/apply/commands.go",
		`	version := s.queue.At().Version // an entry that begins another one is between two calls
`, `	version, next := s.late, s.queue.At().Version
	defer func() { s.late = next }()
`}, {"host/internal/apply/commands.go",
		`	inDigest bool //`, `	late     uint32
	inDigest bool //`}}},
	{name: "halted_version_resumes", what: "a machine that is halted at a version works again when a snapshot of that version is installed", in: ".", found: "TestSnapshotOfAWrongVersion", edits: []edit{{"host/internal/apply/halt.go",
		` && !q.hasWrongVersion() {`, ` && (true || q.hasWrongVersion()) {`}}},
	{name: "new_group_at_version_0", what: "a new group begins at version 0, which its programs cannot do any more", in: ".", found: "TestANewGroupBeginsAtTheLowestVersion", edits: []edit{{"host/versions.go",
		`	if lowest == 0 {
		return nil`, `	if lowest >= 0 {
		return nil`}}},
}
