package planted_test

// serviceBugs are bugs of the service (module server): of watches, and of what clients are told.
var serviceBugs = []bug{
	{name: "keepalive_unfinished", what: "a stream of renewals is answered before its commands are committed", in: "server/api", found: "TestKeepAlivesInOrder", edits: []edit{{"server/api/renewals.go",
		`	for n < len(k.owed) && k.owed[n].done {
`, `	for n < len(k.owed) {
`}}},
	{name: "keepalive_end_first", what: "a stream of renewals ends before the last of them is answered", in: "server/api", found: "TestKeepAlivesInOrder", edits: []edit{{"server/api/renewals.go",
		`	if len(k.owed) == 0 {
		k.owed, err = nil, k.ended
	}
`, `	err = k.ended
`}}},
	{name: "watch_border", what: "an event at the border between the history and the ring is lost", in: "server/watch", found: "TestEachEventOnce", edits: []edit{{"server/watch/replay.go",
		`		w.next = max(w.next, next)
`, `		w.next = max(w.next, next+1)
`}}},
	{name: "watch_dropped_event", what: "a stream that falls behind forgets the first event that it has dropped", in: "server/watch", found: "TestDropped", edits: []edit{{"server/watch/stream.go",
		`			first[i.w] = i.revision
`, `			first[i.w] = i.revision + 1
`}}},
	{name: "watch_future", what: "a watch on a future revision gets older events", in: "server/watch", found: "TestEachEventOnce", edits: []edit{{"server/watch/stream.go",
		`	return revision >= w.next && `, `	return `}}},
	{name: "watch_events_not_made", what: "the ring claims to have revisions whose events were not made, because no stream was open", in: "server/watch", found: "TestEventsThatWereNotMade", edits: []edit{{"server/feed/feed.go",
		`		f.batches, f.bytes = nil, 0
		f.first, f.next = revision+1, revision+1
		f.wake()
		return
	}
	for`, `		f.next = revision + 1
		f.wake()
		return
	}
	for`}}},
	{name: "watch_progress_ahead", what: "a request for progress is answered before the events of watchers that are behind", in: "server/watch", found: "TestProgressIsNeverAhead", edits: []edit{{"server/watch/stream.go",
		`		reached = min(reached, w.next-1)
`, `		_ = w
`}}},
	{name: "watch_notification_overtakes", what: "a progress notification stays in the queue when the events before it are dropped", in: "server/watch", found: "TestDroppedNotification", edits: []edit{{"server/watch/stream.go",
		`		case i.response != nil && i.w != nil: // progress, which must not overtake what is dropped
			s.control--
`, ``}}},
	{name: "watch_compacted", what: "a watch from what is compacted gets what the ring still has", in: "server/watch", found: "TestCompacted", edits: []edit{{"server/watch/replay.go",
		`from < compacted {`, `from < compacted && from < 0 {`}}},
	{name: "watch_snapshot", what: "watches do not notice that a snapshot has replaced the state", in: "server/watch", found: "TestRestoredSnapshot", edits: []edit{{"server/watch/hub.go",
		`		s.fallBehind(h, h.cursor)
`, `		s.poke()
`}}},
	{name: "watch_before_created", what: "events of a watch are sent before the response that creates it", in: "server/watch", found: "TestCreatedComesFirst", edits: []edit{{"server/watch/replay.go",
		`	if s.control > 0 {
		return nil, 0, true
	}
`, ``}}},
	{name: "watch_revision_twice", what: "a revision whose events were sent comes again when the queue is dropped at it", in: "server/watch", found: "TestDroppedAfterTaken", edits: []edit{{"server/watch/stream.go",
		`	w.next = revision + 1 // these may be sent before the stream falls behind at the same revision
`, ``}}},
	{name: "service_unknown_outcome", what: "clients are told that a command whose outcome is not known was refused, so they send it again", in: "server/api", found: "TestOutcomes", edits: []edit{{"server/api/backend.go",
		`	case millrace.MayHaveCommitted(err): //`, `	case false: //`}}},
	{name: "service_branches_exclude", what: "both branches of a nested transaction count as one", in: "server/api", found: "TestChecks", edits: []edit{{"server/api/check.go",
		`c.puts[key] && !exclusive[key]`, `c.puts[key]`}}},
	{name: "service_sniff", what: "a request whose method begins as the preface of HTTP/2 does is taken for it", in: "server/front", found: "TestGarbage", edits: []edit{{"server/front/sniff.go",
		`	return s.choose(bytes.Equal(head, preface)), peeked(c, head)`, `	return s.choose(len(head) > 0 && head[0] == preface[0]), peeked(c, head)`}}},
}
