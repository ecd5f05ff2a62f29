package planted_test

// serverBugs are bugs of the service's store. Its judge is a property test against a naive twin, on an engine
// in memory and on the disk (server/kv).
var serverBugs = []bug{
	{name: "kv_tombstone_swept", what: "the sweep removes the tombstone at the compact revision, where a watch may begin", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/sweep.go",
		`c.deleted && main < p.target {`, `c.deleted && main <= p.target {`}}},
	{name: "kv_swept_too_much", what: "the sweep also removes the version that the compaction keeps", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/sweep.go",
		`		if c.deleted && main < p.target {
`, `		if main == p.target && c.deleted == (sub != 0) {
`}}},
	{name: "kv_superseded_wrong", what: "a change names its own version as the superseded one, and the sweep removes it", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/pass.go",
		`c.beforeMain, c.beforeSub = before.Main, before.Sub`, `c.beforeMain, c.beforeSub = v.Main, v.Sub`}}},
	{name: "kv_superseded_left", what: "a change does not name the version that it has superseded, and no sweep removes it", in: "server/kv", found: "TestCallsOfTheSweep", edits: []edit{{"server/mvcc/pass.go",
		`c.beforeMain, c.beforeSub = before.Main, before.Sub`, `c.beforeSub = before.Sub`}}},
	{name: "kv_snapshot_not_taken_back", what: "a restored machine keeps the changes that are later than its snapshot", in: "server/kv", found: "TestProperty", edits: []edit{{"server/kv/durable.go",
		`return mvcc.RemoveAfter(ctx, e, meta.Revision)`, `return mvcc.RemoveAfter(ctx, e, meta.Revision+1<<40)`}}},
	{name: "kv_restored_index", what: "after a restore the machine says that its disk has what the database before had", in: "server/kv", found: "TestSimulatedOnDisk", args: "-sim.seeds 20", edits: []edit{{"server/kv/durable.go",
		`	disk.number, disk.durable = number, c.state.applied
`, `	disk.number = number
`}}},
	{name: "kv_history_keeps_iterator", what: "the event of a replayed change keeps a key in the memory of an iterator, which reads the next change into it", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/history.go",
		`v.get(kv.Key, main-1)`, `v.get(key, main-1)`}}},
	{name: "kv_late_attributes", what: "a removed member that comes late brings its attributes back", in: "server/kv", found: "TestMembersLeave", edits: []edit{{"server/kv/members.go",
		`now != nil && !slices.Contains`, `now == nil && !slices.Contains`}}},
	{name: "kv_members_before_their_version", what: "a program follows the members before the group is at the version that says so", in: "server/kv", found: "TestMixedProgramsAgree", edits: []edit{{"server/kv/members.go",
		`	if c.Version >= withMembers {
`, `	{
`}}},
	{name: "kv_swept_beside_snapshot", what: "the sweep removes versions that a snapshot needs, whose checkpoint is not made yet", in: "server/kv", found: "TestProperty", args: "-property.commands 40000", edits: []edit{{"server/mvcc/sweep.go",
		`	s.holds++
	done := false
`, `	done := true
`}}},
	{name: "kv_empty_transaction_counts", what: "a transaction that changes nothing has a revision of its own", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/pass.go",
		`	if len(changes) == 0 {
		return
`, `	if len(changes) == 0 {
		p.meta.Revision++
		return
`}}},
	{name: "kv_expired_after_renewal", what: "a lease that was renewed since ends by the expiry of before", in: "server/kv", found: "TestProperty", edits: []edit{{"server/lease/lease.go",
		`e.Number == r.Number && e.Deadline <= now`, `e.Number >= r.Number && e.Deadline <= now`}}},
	{name: "kv_nested_sees_outer", what: "the comparisons of a nested transaction see what the outer one has put", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/txn.go",
		`			a, err := t.execute(ctx, nested[0], want)
			if err != nil {`, `			again, err := t.view().decide(ctx, r.RequestTxn, 1)
			if err != nil {
				return nil, err
			}
			a, err := t.execute(ctx, again, want)
			if err != nil {`}}},
	{name: "kv_refused_not_rolled_back", what: "a command that is refused half-way leaves its versions in front of the engine, and in the cache of heads", in: "server/kv", found: "TestProperty", args: "-property.commands 20000", edits: []edit{{"server/mvcc/pass.go",
		`func (t tx) refuse() { t.p.over.undo(t.from) }`, `func (t tx) refuse() { _ = t.from }`}}},
	{name: "kv_heads_complete", what: "the cache of heads that has forgotten keys still says that they do not exist", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/heads.go",
		`			c.complete = c.complete && len(c.old) == 0
`, ``}}},
	{name: "kv_looked_up_neighbours", what: "keys of a batch that are looked up together get the versions of their neighbours", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/lookup.go",
		`heads.set(string(key), found[i])`, `heads.set(string(key), found[(i+1)%len(found)])`}}},
	{name: "kv_values_refused", what: "a snapshot whose large values are in files of their own cannot be restored", in: "server/kv", found: "TestRestoreIsCutAnywhere", edits: []edit{{"server/kv/disk.go",
		`return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")`, `return strings.HasSuffix(name, ".sst")`}}},
	{name: "values_end_in_a_nil_pointer", what: "a full disk that refuses the end of a file of values ends the process without a sentence", in: "server/engine/pebble", found: "TestFullDiskOfAFileOfValues", edits: []edit{{"server/engine/pebble/values.go",
		`err = f.ends(err)`, `_ = f.ends`}}},
	{name: "values_rewritten_on_a_full_disk", what: "a full disk that refuses a rewrite of values is told nowhere, and the rewrite is tried again without an end", in: "server/engine/pebble", found: "TestFullDiskOfARewrite", edits: []edit{{"server/engine/pebble/pebble.go",
		`BlobFileRewriteEnd: e.rewritten, `, ``}}},
	{name: "values_rot_in_a_panic", what: "a read of a value whose file has lost its end ends the process", in: "server/engine/pebble", found: "TestRotInAFileOfValues", edits: []edit{{"server/engine/pebble/reader.go",
		`valueAt(r.point)`, `r.point.ValueAndErr()`}}},
	{name: "answers_wait_for_each_other", what: "two lists that have filled the memory of answers wait for each other", in: "server/answers", found: "TestNoTwoWaitForEachOther", edits: []edit{{"server/answers/answers.go",
		`if oldest || b.made`, `if _ = oldest; b.made`}}},
	{name: "answers_outgrow_the_unread", what: "lists are made without end while clients read nothing", in: "server/answers", found: "TestWhatIsSentIsNeverOutgrown", edits: []edit{{"server/answers/answers.go",
		`b.making[0] == a && (b.sent == 0 || b.sent+a.counted+step <= b.max)`, `b.making[0] == a`}}},
	{name: "answers_wait_beside_the_unread", what: "two lists wait for each other while a client has not read a little", in: "server/answers", found: "TestALittleUnread", edits: []edit{{"server/answers/answers.go",
		` || b.sent+a.counted+step <= b.max)`, `)`}}},
	{name: "answers_unread_do_not_count", what: "an answer that its client does not read takes no part of the memory of answers", in: "server/answers", found: "TestWhatIsSentCountsUntilItIsWritten", edits: []edit{{"server/answers/codec.go",
		`	return mem.BufferSlice{mem.NewBuffer(&content, s)}, nil`, `	s.hold.release()
	return mem.BufferSlice{mem.NewBuffer(&content, s)}, nil`}}},
	{name: "answers_of_the_gone_count", what: "an answer whose connection is gone keeps its part of the memory of answers", in: "server/answers", found: "TestWhatIsSentCountsUntilItIsWritten", edits: []edit{{"server/answers/codec.go",
		`	runtime.AddCleanup(s, (*hold).release, s.hold)
`, `	runtime.KeepAlive(s)
`}}},
	{name: "kv_values_stale", what: "the cache of values does not learn of what a pass has changed", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/pass.go",
		`		p.s.values.change(v.key, v.Main)
`, ``}}},
	{name: "kv_values_put_back", what: "a read that began before a change puts the old version back into the cache of values", in: "server/kv", found: "TestReadsBesideWrites", edits: []edit{{"server/mvcc/values.go",
		`	if p.changed <= visible {`, `	if _ = visible; true {`}}},
	{name: "kv_values_ahead", what: "a read at an earlier revision gets the newest version from the cache of values", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/values.go",
		`if !ok || v.Main > rev {`, `if _ = rev; !ok {`}}},
	{name: "kv_values_late", what: "the cache of values learns of a change when its revision is visible already", in: "server/kv", found: "TestReadsBesideWrites", edits: []edit{{"server/mvcc/pass.go",
		`		p.s.values.change(v.key, v.Main)
`, ``}, {"server/mvcc/pass.go",
		`	p.s.visible.Store(&p.meta)
`, `	p.s.visible.Store(&p.meta)
	for _, v := range p.over.order {
		p.s.values.change(v.key, v.Main)
	}
`}}},
	{name: "kv_heads_stale", what: "the cache of heads does not learn of what a pass has changed", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/pass.go",
		`		p.s.heads.set(string(v.key), v.Head)
`, `		_ = v
`}}},
	{name: "kv_revoked_in_one_pass", what: "a revocation does not see what the same call of Apply has attached to the lease", in: "server/kv", found: "TestProperty", edits: []edit{{"server/mvcc/leases.go",
		`!v.Deleted && v.Lease == lease {
			keys`, `!v.Deleted && v.Lease == lease && false {
			keys`}}},
	{name: "kv_feed_gap", what: "the feed forgets a batch, and says that it reaches back to it", in: "server/feed", found: "TestRing", edits: []edit{{"server/feed/feed.go",
		`		f.first = f.batches[drop].Revision + 1
`, `		f.first = f.batches[drop].Revision
`}}},
}
