package planted_test

// Bugs about machines that learn of the members of their group.
var observingBugs = []bug{
	{name: "members_told_twice", what: "a machine learns twice of a change of members", in: "sim", found: "TestChurn", args: "-churns 5", says: "after entry", also: []judge{{in: "host/internal/apply", test: "TestMembersChanged"}}, edits: []edit{{"host/internal/apply/members.go",
		`	err := q.observing.machine.MembersChanged(c)
`, `	err := q.observing.machine.MembersChanged(c)
	if err == nil {
		err = q.observing.machine.MembersChanged(c)
	}
`}}},
	{name: "members_before_commands", what: "a machine learns of a change of members before it has applied the commands in front of that", in: "sim", found: "TestChurn", args: "-churns 20", says: "after entry", also: []judge{{in: "host/internal/apply", test: "TestMembersChanged"}}, edits: []edit{{"host/internal/apply/queue.go",
		`	for rest := entries; len(rest) > 0; {
		if !rest[0].HoldsCommands() {`, `	for i := range entries {
		if e := &entries[i]; !e.HoldsCommands() {
			_ = q.takeMembers(e, false)
		}
	}
	for rest := entries; len(rest) > 0; {
		if !rest[0].HoldsCommands() {`}}},
	{name: "members_at_the_leader_only", what: "only the machine of the leader learns of a change of members", in: "sim", found: "TestChurn", args: "-churns 5", says: "others have learned", edits: []edit{{"host/internal/apply/members.go",
		`	if o.machine == nil {`, `	if o.machine == nil || !q.Leads() {`}}},
	{name: "members_lost_with_a_snapshot", what: "a machine that begins from a snapshot does not learn of later changes of members", in: "sim", found: "TestChurn", args: "-churns 20", says: "learned of", also: []judge{{in: "host/internal/apply", test: "TestMembersChangedAfterASnapshot"}}, edits: []edit{{"host/internal/apply/queue.go",
		`	q.observing.members.From(roster)
`, `	q.observing.members.From(nil)
`}}},
	{name: "members_not_again", what: "a machine that gets its log again after a start learns of no members", in: "sim", found: "TestChurn", args: "-churns 5", says: "others have learned", edits: []edit{{"host/internal/apply/members.go",
		`	case hasSessions && e.Index <= m.held:`, `	case e.Index <= q.Log.LastIndex()-min(q.Log.LastIndex(), 1) && q.calls.Load() == 0:`}}},
	{name: "leaving_is_not_told", what: "a machine does not learn that a joint configuration was left", in: "sim", found: "TestChurn", args: "-churns 10", also: []judge{{in: "host/internal/apply", test: "TestMembersChanged"}}, edits: []edit{{"host/internal/entry/members.go",
		`	return was.Equivalent(next.Conf) != nil`, `	return was.Equivalent(next.Conf) != nil && len(was.VotersOutgoing) == 0`}}},
	{name: "held_members_come_again", what: "a machine on disk learns again of a change of members that it holds", in: "sim", found: "TestBatchEntries", says: "after entry", also: []judge{{in: "host/internal/apply", test: "TestMembersChangedAfterASnapshot"}}, edits: []edit{{"host/internal/apply/members.go",
		`	case hasSessions && e.Index <= m.held:`, `	case hasSessions && e.Index+1<<20 <= m.held:`}}},
	{name: "members_do_not_count", what: "a snapshot of a machine on disk is of the last command, and the machine has learned of members behind it", in: "host/internal/apply", found: "TestMembersChanged", edits: []edit{{"host/internal/apply/members.go",
		`	if q.calls.Add(1); hasSessions {
		m.last = e.Index
	}`, `	q.calls.Add(1)`}}},
	{name: "members_at_a_wrong_version", what: "a machine learns of members at a version that its program cannot do", in: "sim", found: "TestUpgrades", says: "its program can do", also: []judge{{in: "host/internal/apply", test: "TestMembersChangedAtAWrongVersion"}}, edits: []edit{{"host/internal/apply/members.go",
		`	if halted := q.rejectVersion(q.At(), e.Index); halted != nil {`, `	if halted := q.rejectVersion(q.At(), e.Index); halted != nil && q.calls.Load() > 1<<40 {`}}},
	{name: "versions_without_members", what: "a machine does not learn who the members are where a version begins", in: "host/internal/apply", found: "TestMembersChanged", edits: []edit{{"host/internal/apply/queue.go",
		`return q.takeMembers(e, q.At().Since == e.Index)`, `return q.takeMembers(e, false)`}}},
	{name: "members_lost_in_front_of_a_hold", what: "a machine that waits in front of a change of members does not learn of it", in: "host/internal/apply", found: "TestMembersChangedWaits", edits: []edit{{"host/internal/apply/members.go",
		`	next := o.members //`, `	next := &o.members //`}, {"host/internal/apply/members.go",
		`	o.members = next
`, ``}}},
	{name: "skipped_members_are_told", what: "a machine learns of a change of members that the group skips", in: "host/internal/apply", found: "TestMembersChangedFails", edits: []edit{{"host/internal/apply/members.go",
		`	case q.Skips.Of(at[0].Position()) > 0:`, `	case q.Skips.Of(at[0].Position()) > 1<<40:`}}},
}
