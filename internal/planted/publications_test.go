package planted_test

// Bugs about what machines publish, and subscribers.
var publicationBugs = []bug{
	{name: "published_again", what: "a machine that is made again from a snapshot publishes to subscribers what they have", in: "host/internal/feed", found: "TestFeedAgainstItsTwin", edits: []edit{{"host/internal/feed/publications.go",
		`		if endOf(c).Compare(f.through) <= 0 {
			continue
		}
`, ``}}},
	{name: "published_by_a_failure", what: "subscribers get what a batch has published that has halted the machine", in: "host/internal/apply", found: "TestAHaltedMachinePublishesOnce", edits: []edit{{"host/internal/apply/commands.go",
		`	if err := s.applyBatch(); err != nil {
`, `	if err := s.applyBatch(); err != nil {
		s.Feed.Append(s.batch)
`}}},
	{name: "snapshots_without_publications", what: "a member that begins from a snapshot has none of the publications before it", in: "sim", found: "TestSubscriptions", says: "which forgets nothing", edits: []edit{{"host/snapshots.go",
		`published := m.Feed.Capture(); published != nil {`, `published := m.Feed.Capture(); published != nil && false {`}}},
	{name: "forgotten_unsaid", what: "a slow subscriber skips the publications that are not kept any more, and does not hear of it", in: "sim", found: "TestSubscriptions", says: "a subscriber that has taken", edits: []edit{{"host/internal/feed/publications.go",
		`		f.floor = f.batches[0].last()
`, ``}}},
	{name: "gap_joined", what: "a member that installs a snapshot joins its publications to older ones, over a gap", in: "sim", found: "TestSubscriptions", says: "a subscriber that has taken", also: []judge{{in: "host/internal/feed", test: "TestFeedAgainstItsTwin"}}, edits: []edit{{"host/internal/feed/publications.go",
		`	if floor.Compare(f.through) > 0 {`, `	if floor.Compare(f.through) > 1 {`}}},
	{name: "border_published_twice", what: "a subscriber gets the last publication that it has once more", in: "sim", found: "TestSubscriptions", says: "a subscriber that has taken", edits: []edit{{"host/internal/feed/publications.go",
		`p.At.Compare(after) <= 0`, `p.At.Compare(after) < 0`}}},
	{name: "border_of_a_snapshot_lost", what: "of the publications that a snapshot brings the first is lost", in: "sim", found: "TestSubscriptions", says: "a subscriber that has taken", edits: []edit{{"host/internal/feed/publications.go",
		`f.addAll(all[first:])`, `f.addAll(all[min(first+1, len(all)):])`}}},
	{name: "disk_remembers_publications", what: "a machine on disk that starts again passes for one that has published nothing before", in: "sim", found: "TestSubscriptions", args: "-first 38 -subscriptions 1", says: "a subscriber that has taken", edits: []edit{{"host/internal/apply/commands.go",
		`		s.Feed.Forget(s.held) // it does not publish that again
`, ``}}},
	{name: "publications_of_the_index", what: "a snapshot of a machine on disk, which holds more than its index, is refused at the next start", in: "sim", found: "TestSeeds", args: "-first 146 -seeds 1 -faults 1500ms", says: "publications in a snapshot cannot be read", edits: []edit{{"host/subscribe.go",
		`max(p.ID.Index, last)`, `min(p.ID.Index, last)`}}},
	{name: "subscribers_sleep_on", what: "a subscriber that waits is not woken", in: "host/internal/feed", found: "TestReadersAreWokenOnce", edits: []edit{{"host/internal/feed/publications.go",
		`	f.mu.Unlock()
	if f.waiting.Load() > 0 {
		f.wake()`, `	f.mu.Unlock()
	if f.waiting.Load() > 1<<40 {
		f.wake()`}}},
}
