package planted_test

// hostileBugs are bugs in what a host believes of others.
var hostileBugs = []bug{
	{name: "any_cluster", what: "hosts of different clusters hear each other", in: "host/internal/identity", found: "TestFounding", edits: []edit{{"host/internal/identity/admission.go",
		`	lists := fmt.Sprintf("host %d with %s, host %d`, `	if true {
		return nil
	}
	lists := fmt.Sprintf("host %d with %s, host %d`}}},
	{name: "older_life_heard", what: "a host that runs on an old backup of its directory is heard", in: "host/internal/identity", found: "TestLives", edits: []edit{{"host/internal/identity/admission.go",
		`case now.Generation < before.Generation || now.Generation == before.Generation && now.Life != before.Life:`, `case false:`}}},
	{name: "believe_generations", what: "a host believes that a later life of a directory follows on the ones that it has heard", in: "host/internal/identity", found: "TestBackupThatStartsOften", edits: []edit{{"host/internal/identity/admission.go",
		`	case was != 0 && was != uint32(before.Life):`, `	case was != 0 && was != uint32(before.Life) && false:`}}},
	{name: "any_type_travels", what: "a peer may send messages of types that hosts do not send", in: "host", found: "TestReceiveChecksTheWay", edits: []edit{{"host/receive.go",
		`	case !mayTravel(m.Type):`, `	case !mayTravel(m.Type) && false:`}}},
	{name: "sender_not_compared", what: "a message may name another host as its sender", in: "host", found: "TestReceiveChecksTheWay", edits: []edit{{"host/receive.go",
		`	case m.From != from:`, `	case m.From != from && false:`}}},
	{name: "strangers_stay", what: "a connection that has not said who it is keeps its slot from members", in: "transport/tcp", found: "TestStrangersDoNotKeepMembersOut", edits: []edit{{"transport/tcp/inbound.go",
		`	if evicted = s.crowded(in.addr, maxStrangers); evicted != nil {`, `	if evicted = s.crowded(in.addr, maxStrangers); evicted != nil {
		evicted = nil
		return nil, nil
	}
	if evicted != nil {`}}},
}
