package planted_test

// largeObjectBugs are bugs in what the runtime does for large objects.
var largeObjectBugs = []bug{
	{name: "apply_without_objects", what: "a member applies a command that names objects which it does not have", in: "sim", found: "TestObjects", args: "-objects 5", says: "and does not have it", edits: []edit{{"host/objectwiring.go",
		`if wrong == nil && len(c.Names) > 0 {`, `if false {`}}},
	{name: "name_anything", what: "a command is applied that names an object which is not held, or has expired", in: "sim", found: "TestObjects", args: "-objects 5", edits: []edit{{"host/internal/objects/apply.go",
		`k.table.Name(name); err != nil {`, `k.table.Name(name); err != nil && false {`}}},
	{name: "hold_by_anyone", what: "objects are held before a quorum of the members has them", in: "sim", found: "TestObjects", args: "-first 5 -objects 8", says: "is said to be held, and its holders are", edits: []edit{{"host/internal/objects/apply.go",
		`if r == nil {
		return r != nil`, `if true {
		return r != nil`}, {"host/internal/objects/holders.go",
		`all := h.of(roster, &s); roster.Spare(func(id uint64) bool { return contains(all, id) }) >= 0 {`, `all := h.of(roster, &s); roster.Spare(func(id uint64) bool { return contains(all, id) }) >= 0 || true {`}}},
	{name: "ignore_election", what: "a host looks at objects when its term begins, and not when it is elected in it", in: "sim", found: "TestObjects", args: "-objects 20", edits: []edit{{"host/internal/objects/holders.go",
		`if h.term != st.Term || h.leader != st.Lead {`, `if h.term != st.Term {`}}},
	{name: "hold_before_log", what: "a member says that it holds objects whose entries open its log does not have yet", in: "sim", found: "TestObjects", args: "-objects 10", says: "is said to hold object", edits: []edit{{"host/internal/objects/holders.go",
		`through: min(k.wiring.Applied(), st.Durable),`, `through: math.MaxUint64,`}}},
	{name: "promote_without_objects", what: "a leader promotes a learner that does not have the group's objects", in: "host", found: "TestMembersWaitForObjects", also: []judge{{in: "sim", test: "TestObjects", args: "-first 1 -objects 1", says: "is promoted by entry"}}, edits: []edit{{"host/internal/objects/holders.go",
		`if k == nil {
		return true`, `if true {
		return true`}}},
	{name: "change_without_objects", what: "a leader changes the members although no quorum of the new ones holds an object that may be named", in: "host", found: "TestMembersWaitForObjects", also: []judge{{in: "sim", test: "TestObjects", args: "-first 262 -objects 1", says: "is not on a quorum of disks"}}, edits: []edit{{"host/internal/objects/holders.go",
		`if k == nil {
		return ""
	}
	if at :=`, `if true {
		return ""
	}
	if at :=`}}},
	{name: "judge_objects_early", what: "a host removes the files of objects that it does not know yet when it starts", in: "sim", found: "TestObjects", args: "-first 69 -objects 1", says: "has not elected a leader, committed and converged", edits: []edit{{"host/internal/objects/removal.go",
		`case k.wiring.Applied() < min(k.judgeAt, k.wiring.LastIndex()):`, `case false:`}}},
	{name: "remove_objects_early", what: "a host removes the files of an object as soon as it has expired", in: "host", found: "TestFilesOfAnExpiredObjectStayForTheLog", edits: []edit{{"host/internal/objects/removal.go",
		`if at == 0 || at > first {`, `if at == 0 {`}, {"host/internal/objects/removal.go",
		`k.ended[n].Index < first {`, `(k.ended[n].Index < first || true) {`}}},
}
