package planted_test

// walBugs are bugs in the log's own code. Most are mistakes that were made once, here or elsewhere: a sync
// left out, a step too early, a case forgotten. The texts are short, so that they outlive changes around
// them; TestEachApplies says which did not.
var walBugs = []bug{
	// Making, recycling and removing segments.
	{name: "flush_reused_under_way", what: "a flush is used for another one before it is completed", found: labTest, edits: []edit{{"wal/sync.go",
		`	if l.flusher.done = nil; f == nil {`, `	if f == nil {`}}},
	{name: "read_place_of_any_run", what: "a reader of the cache goes on where another run of its group was read", found: "TestReaderGoesOnWhereItStopped", edits: []edit{{"wal/read.go",
		`	if p.run == r.at && p.index`, `	if p.index`}}},
	{name: "create_name_not_synced", what: "a new segment counts before its name is durable", found: labTest, edits: []edit{{"wal/segment.go",
		`if err := l.syncDir(); err != nil {`, `if err := error(nil); err != nil {`}}},
	{name: "recycle_name_not_synced", what: "a recycled segment counts before its rename is durable", found: labTest, edits: []edit{{"wal/spare.go",
		`	if err := l.syncDir(); err != nil {
		return nil, err
	}
	l.stats.recycled`, `	l.stats.recycled`}}},
	{name: "recycle_head_not_synced", what: "a spare is renamed before its new header is durable", found: labTest, rare: true, edits: []edit{{"wal/spare.go",
		`	if err := s.file.Sync(); err != nil {
		return nil, err
	}
	if err := l.opts.FS.Rename(from`, `	if err := l.opts.FS.Rename(from`}}},
	{name: "retire_not_synced", what: "segments are removed in an order that a crash can reverse", found: labTest, rare: true, edits: []edit{{"wal/spare.go",
		`	if err := l.syncDir(); err != nil {
		return err
	}
	l.supply.addSpare(file)`, `	l.supply.addSpare(file)`}}},
	{name: "directory_sync_tried_again", what: "a sync of the directory that failed is tried again, and believed", found: "TestFailedDirectorySyncIsFinal", edits: []edit{{"wal/segment.go",
		`return l.failAt("sync", l.opts.Dir, 0, err)`, `return err`}}},
	{name: "newest_dropped_first", what: "of the segments that no group needs the newest goes first", found: labTest, rare: true, edits: []edit{{"wal/clean.go",
		`if s != tail && (first == nil || s.id < first.id) {`, `if s != tail && s.id < l.cleaner.firstNeeded && (first == nil || s.id > first.id) {`}}},
	{name: "zeros_over_records", what: "the zero-filler does not know how far an append has got", found: labTest, rare: true, edits: []edit{{"wal/blocks.go",
		`	s.claim(l.tail.bufAt + `, `	_ = (l.tail.bufAt + `}}},
	{name: "zero_sync_swallowed", what: "an error of the sync after zero-filling is forgotten", found: "TestHelperErrors", rare: true, edits: []edit{{"wal/zeros.go",
		`_ = l.fail("sync after zero-fill", s, 0, err)`, `_ = err`}}},
	{name: "no_zeros_ahead", what: "segments become the tail before their blocks are written", found: "TestSyncsOfAGrowingLogCommitNoInode", rare: true, edits: []edit{{"wal/zeros.go",
		`if tail.id < z.resume {`, `if true {`}}},
	{name: "zeros_ahead_not_synced", what: "the zeros of the next segment are not durable when it becomes the tail", found: "TestSyncsOfAGrowingLogCommitNoInode", rare: true, edits: []edit{{"wal/zeros.go",
		`	err := s.sync()
	if err != nil && (`, `	err := error(nil)
	if err != nil && (`}}},
	{name: "late_lack_of_space_stops_the_log", what: "zeros for which the filesystem finds no space when they are synced stop the log", found: "TestZerosThatFindNoSpaceLate", rare: true, edits: []edit{{"wal/zeros.go",
		`(!isFull(err) || s.reached.Load())`, `true`}}},
	{name: "late_lack_of_space_loses_records", what: "a sync that finds no space, and may have lost records of the tail, is taken for one of zeros", found: "TestZerosThatFindNoSpaceLate", rare: true, edits: []edit{{"wal/zeros.go",
		`(!isFull(err) || s.reached.Load())`, `!isFull(err)`}}},
	{name: "cut_spare_becomes_a_segment", what: "a spare that an operator has cut becomes a segment, which the next Open refuses", found: "TestTakenSparesStopNothing", edits: []edit{{"wal/spare.go",
		`err == nil && size == l.opts.SegmentBytes {`, `err == nil {`}}},
	{name: "taken_spare_stops_the_log", what: "a spare that an operator has removed stops the log", found: "TestTakenSparesStopNothing", edits: []edit{{"wal/prepare.go",
		`!errors.Is(err, errUnfit) {`, `true {`}}},
	{name: "zeros_on_a_busy_disk", what: "zeros take the bandwidth that appends need", found: "TestZerosTakeNoBandwidthFromAppends", rare: true, edits: []edit{{"wal/zeros.go",
		`	if z.sample.hurts(`, `	if false && z.sample.hurts(`}}},
	{name: "helper_does_not_rest", what: "the helper fills a segment without a pause", found: "TestTheHelperRests", rare: true, edits: []edit{{"wal/zeros.go",
		`z.rested = now + (now - before)`, `z.rested = now`}}},
	{name: "spare_taken_for_written", what: "a spare counts as written to its end, whatever it was", found: "TestSparesGetTheZerosThatTheyLack", rare: true, edits: []edit{{"wal/spare.go",
		`s.zeroed.Store(max(s.zeroed.Load(), from.written))`, `s.zeroed.Store(s.size)`}}},
	{name: "young_tail_first", what: "a helper that was late fills the young tail first, and never catches up", found: "TestALateHelperCatchesUp", rare: true, edits: []edit{{"wal/zeros.go",
		`		if zeroed < nextGoal(end, size, piece) {
			return next, size, 0
		}`, `		if zeroed < nextGoal(end, size, piece) && tail.zeroed.Load() >= tailGoal(end, tail.size, piece) {
			return next, size, 0
		}`}}},
	{name: "zeros_by_the_block", what: "zeros are filled to the block, so the helper wakes for each sync", found: "TestZerosComeInWholePieces", rare: true, edits: []edit{{"wal/zeros.go",
		`	if zeroed < tailGoal(end, size, piece) {
		return tail, size, 0
	}`, `	if goal := tailGoal(end, size, piece); zeroed < goal {
		return tail, goal, 0
	}`}}},
	{name: "zeroes_over_the_head", what: "a disk that writes zeros by itself writes them over the header of a new segment", found: "TestPowerCutsAmongZeros", rare: true, edits: []edit{{"wal/segment.go",
		`	s.zeroed.Store(max(s.zeroed.Load(), written))`, `	s.zeroed.Store(max(s.zeroed.Load(), written))
	_, _ = allocate(s.file, size)`}}},
	{name: "written_segment_taken_for_young", what: "a segment that the disk has filled with zeros gets them again", found: "TestDisksThatWriteZeroes", rare: true, edits: []edit{{"wal/segment.go",
		`	s.zeroed.Store(max(s.zeroed.Load(), written))`, `	s.zeroed.Store(max(s.zeroed.Load(), min(written, 0)))`}}},
	{name: "stale_records_fit", what: "the records of a spare's last use are valid in its next segment, at the same place", found: labTest, rare: true, edits: []edit{
		{"wal/record/seal.go", `uint32(s.Segment)*0x9E3779B1 ^ uint32(s.Segment>>32) ^ uint32(off/Alignment)`, `uint32(off / Alignment)`},
		{"wal/segment.go", `Salt: binary.LittleEndian.Uint64(salt[:]), Size`, `Salt: 1, Size`}}},

	// Flushes.
	{name: "sum_of_an_older_entry", what: "the cache has the sum of what was in its memory before", found: "TestCacheKeepsSums", edits: []edit{{"wal/ring.go",
		`		binary.LittleEndian.PutUint32(head[4:], e.Sum)
`, `		if e.Sum != 0 {
			binary.LittleEndian.PutUint32(head[4:], e.Sum)
		}
`}}},
	{name: "padding_not_in_the_sum", what: "a record is joined with the length of its body, and its padding counts too", found: "TestSumsChangeNoByte", edits: []edit{{"wal/record/header.go",
		`return crcjoin.Join(chain, crcjoin.Update(sum, padding[:padded-bytes]), padded)`, `return crcjoin.Join(chain, crcjoin.Update(sum, padding[:padded-bytes]), bytes)`}}},
	{name: "record_sums_again", what: "the log seals whatever an entry's memory holds by now", found: "TestRotBehindTheSumIsFound", edits: []edit{{"wal/append.go",
		`	if sum != 0 {
		h.BodyCRC`, `	if false {
		h.BodyCRC`}}},
	{name: "roll_forgets_the_older", what: "after a roll a flush syncs the new segment only", found: labTest, edits: []edit{{"wal/append.go",
		`		l.flusher.older = l.tail.seg
	}`, `		l.supply.coolLater(l.tail.seg)
	}`}}},
	{name: "roll_twice_without_sync", what: "a log rolls over although two segments are not synced", found: labTest, rare: true, edits: []edit{
		{"wal/append.go", `	if err := l.syncOlder(); err != nil {`, `	if err := error(nil); err != nil {`},
		{"wal/space.go", `if c.ahead == 0 && l.flusher.older != nil {`, `if false {`}}},
	{name: "watermark_before_the_older", what: "a record of the new segment says that the older one is synced when it is not", found: labTest, rare: true, edits: []edit{{"wal/older.go",
		`	if l.flusher.durable.segment != l.tail.seg.id {
		return 0
	}`, `	if l.flusher.durable.segment != l.tail.seg.id {
		return record.SegmentHeaderBytes
	}`}}},
	{name: "link_is_always_proof", what: "a crash that tears the older of two unsynced segments is taken for damage", found: labTest, edits: []edit{{"wal/older.go",
		`	if t.proof || link.Segment == 0`, `	if true || link.Segment == 0`}}},
	{name: "older_not_written_again", what: "a recovery shows what the segment before the tail holds in the kernel's memory only", found: labTest, rare: true, edits: []edit{{"wal/recover.go",
		`before != nil && !tail.proof {`, `before != nil && false {`}}},
	{name: "one_sync_left_out", what: "one flush in sixteen is acknowledged without a sync", found: labTest, rare: true, edits: []edit{{"wal/sync.go",
		`	if f.err = l.syncSegment(f.tail); f.err != nil {`, `	if f.target.off%16 != 8 {
		f.err = l.syncSegment(f.tail)
	}
	if f.err != nil {`}}},
	{name: "sync_error_swallowed", what: "a sync that failed is taken for done", found: labTest, rare: true, edits: []edit{{"wal/sync.go",
		`return l.fail("sync", s, 0, err)`, `return nil`}}},
	{name: "durable_is_the_end_after_the_sync", what: "what was appended while a flush was under way counts with it", found: labTest, edits: []edit{{"wal/sync.go",
		`	l.advanceDurable(f.target)`, `	l.advanceDurable(position{segment: f.tail.id, off: f.tail.end})`}}},
	{name: "stale_completion", what: "a flush says that entries are durable which were replaced since", found: labTest, rare: true, edits: []edit{{"wal/sync.go",
		`c.last = min(c.last, g.lowest)`, `_ = g.lowest`}}},
	{name: "truncation_keeps_durable", what: "entries that were taken back stay durable", found: labTest, edits: []edit{{"wal/group.go",
		`g.durable.Store(min(g.durable.Load(), i-1))`, ``}}},
	{name: "votes_do_not_hurry", what: "in the unsafe modes a vote counts before it is durable", found: labTest, edits: []edit{{"wal/sync.go",
		`m.Unsafe() && !l.hurries()`, `m.Unsafe()`}}},
	{name: "votes_wait_for_more", what: "in group-delay a vote waits for the delay", found: "TestModesPromise", edits: []edit{{"wal/sync.go",
		`m.Kind != KindGroupDelay || l.hurries() ||`, `m.Kind != KindGroupDelay ||`}}},
	{name: "membership_does_not_hurry", what: "in the unsafe modes a membership entry counts before it is durable", found: "TestModesPromise", edits: []edit{{"wal/plan.go",
		`p.critical = p.critical || e.Type.ChangesMembers()`, `_ = raftpb.EntryNormal`}}},
	{name: "deletion_does_not_hurry", what: "in the unsafe modes a deletion counts before it is durable", found: "TestDeletionIsDurableBeforeItCounts", edits: []edit{{"wal/plan.go",
		`p.critical = p.deletes`, `_ = p.deletes`}}},
	{name: "sync_mode_does_not_sync", what: "in the mode sync an append does not sync", found: labTest, rare: true, edits: []edit{{"wal/append.go",
		`if l.opts.Mode.Kind == KindSync {`, `if l.opts.Mode.Kind == KindSync && len(writes) > 2 {`}}},
	{name: "covered_flush_hides_failure", what: "a flush that a later one covered does not say that the log failed", same: "the next call says it", edits: []edit{{"wal/sync.go",
		`		f.err = l.failure()
		return f.err`, `		return nil`}}},
	{name: "durable_goes_back", what: "a flush that is late moves the durable position back", same: "a covered flush does not sync, so it moves nothing", edits: []edit{{"wal/sync.go",
		`	if !l.flusher.durable.before(target) {
		return
	}
`, ``}}},

	// The end of the log, and how recovery judges it.
	{name: "only_what_is_shown_is_written_again", what: "recovery writes no zeros where the kernel shows zeros that it does not write", in: "wal", found: "TestSeedsThatFailed", edits: []edit{{"wal/recover.go",
		`t.writeAgain(t.end + record.HeaderBytes)`, `t.writeAgain(t.written)`}}},
	{name: "no_zeros_behind", what: "no zeros are written behind an append", in: "wal", found: "TestARecycledSegmentEndsInZeros", edits: []edit{{"wal/tail.go",
		`int64(len(t.buf))+record.HeaderBytes`, `int64(len(t.buf))`}}},
	{name: "watermark_never_moves", what: "no record says what is durable", found: "TestFlipEveryBit", rare: true, edits: []edit{{"wal/append.go",
		`h.Durable = uint64(l.watermark())`, `h.Durable = uint64(min(l.watermark(), record.SegmentHeaderBytes))`}}},
	{name: "watermark_too_high", what: "a record says that everything before it is durable", found: labTest, edits: []edit{{"wal/append.go",
		`h.Durable = uint64(l.watermark())`, `h.Durable = uint64(s.end)`}}},
	{name: "cut_below_the_watermark", what: "damage to durable records is cut like a torn tail", found: "TestFlipEveryBit", rare: true, edits: []edit{{"wal/scan.go",
		`&& t.laterWatermark > t.end {`, `&& t.laterWatermark > t.end+1<<40 {`}}},
	{name: "close_writes_no_mark", what: "no watermark follows the last batch of a closed log", same: "FENCE says where a closed log ends; the mark is for a log whose FENCE could not be written", edits: []edit{{"wal/sync.go",
		`	if !l.watermarkDirty() {`, `	if true {`}}},
	{name: "no_idle_mark", what: "nothing ever follows the last batch of a quiet log", found: "TestIdleLogWritesAWatermark", edits: []edit{{"wal/idle.go",
		`	l.tail.idling.armed = true
	l.idle.timer.Set(idleDelay)`, `	l.tail.idling.armed = true`}}},
	{name: "header_overwritten", what: "a recovery writes a new header over the durable one of a log without records", found: "TestEmptyLogOpensAfterAFailedOpen", edits: []edit{{"wal/recover.go",
		`		tail = found[0]
		if err := l.table.cold.pin(tail.seg); err != nil {
			return err
		}
`, `		tail = found[0]
		if err := l.table.cold.pin(tail.seg); err != nil {
			return err
		}
		if err := l.writeHead(tail.seg, zeroPieceBytes); err != nil {
			return err
		}
		tail.chain = tail.seg.chain
`}}},
	{name: "recovery_does_not_sync_the_tail", what: "what a recovery shows may be in the kernel's memory only", found: labTest, rare: true, edits: []edit{{"wal/recover.go",
		`	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("sync of`, `	if err := error(nil); err != nil {
		return fmt.Errorf("sync of`}}},
	{name: "recovery_does_not_write_again", what: "what a failed sync left in clean pages is shown and never written", found: labTest, rare: true, edits: []edit{{"wal/recover.go",
		`s.file.WriteAt(tail, t.watermark)`, `s.file.WriteAt(tail[:0], t.watermark)`}}},
	{name: "cut_part_not_wiped", what: "a recovery leaves what it cuts on disk", found: "TestTornTailIsCutAndZeroed", edits: []edit{{"wal/recover.go",
		`s.file.WriteAt(tail, t.watermark)`, `s.file.WriteAt(tail[:t.end-t.watermark], t.watermark)`}}},
	{name: "recovery_does_not_sync_names", what: "a recovery believes names that are not durable", found: "TestFenceHasItsNameBeforeASegmentIsMade", edits: []edit{{"wal/scan.go",
		`if err := vfs.SyncDir(sc.dir.fs, sc.dir.path); err != nil {`, `if err := error(nil); err != nil {`}}},
	{name: "removed_segments_not_synced", what: "empty segments are removed, and come back", found: labTest, rare: true, edits: []edit{{"wal/recover.go",
		`		if err := vfs.SyncDir(r.log.opts.FS, r.log.opts.Dir); err != nil {`, `		if err := error(nil); err != nil {`}}},
	{name: "clamped_commit_not_written", what: "a commit index that was lowered comes back", found: "TestLogsOfRandomRecords", edits: []edit{{"wal/recover.go",
		`for _, g := range r.mendStates() {`, `for _, g := range r.mendStates()[:0] {`}}},
	{name: "link_chain_unchecked", what: "a segment may follow on another one of the same number and length", found: "TestRulesAreTold", edits: []edit{{"wal/older.go",
		`case t.link.Chain != before.chain:`, `case false:`}}},
	{name: "bodies_not_chained", what: "a record's body does not prove what comes before it", found: "TestRulesAreTold", rare: true, edits: []edit{{"wal/record/header.go",
		`crc32.Update(chain, castagnoli,`, `crc32.Update(0, castagnoli,`}}},
	{name: "place_without_segment", what: "a header does not prove of which segment it is", same: "each segment has a salt of its own", edits: []edit{{"wal/record/seal.go",
		`uint32(s.Segment)*0x9E3779B1 ^ uint32(s.Segment>>32) ^ uint32(off/Alignment)`, `uint32(off / Alignment)`}}},
	{name: "salt_unchecked", what: "a command can hold headers that are valid where it lands", found: "TestForgedWatermark", rare: true, edits: []edit{{"wal/record/seal.go",
		`&math.MaxUint32) ^ s.Salt`, `&math.MaxUint32)`}}},
	{name: "half_of_the_check", in: "wal/record", what: "of a header's check 32 bits are compared", found: "TestEveryBitOfAHeaderCounts", rare: true, edits: []edit{{"wal/record/seal.go",
		`s.Sum(b[:CheckAt], off))&mask == 0`, `s.Sum(b[:CheckAt], off))&mask>>32 == 0`}}},
	{name: "one_salt_for_all", what: "all segments have the same salt", found: "TestSaltsDiffer", rare: true, edits: []edit{{"wal/segment.go",
		`Salt: binary.LittleEndian.Uint64(salt[:]), Size`, `Salt: binary.LittleEndian.Uint64(salt[:]) & 1, Size`}}},

	{name: "same_boot_ignored", what: "a wrong body is a torn write although the machine did not lose power", found: "TestWrongBodyAtTheEnd", edits: []edit{{"wal/torn.go",
		`if !sc.past.sameBoot || !t.head`, `if true || !t.head`}}},
	{name: "same_boot_always", what: "a torn write is corruption although the machine lost power", found: labTest, rare: true, edits: []edit{{"wal/torn.go",
		`if !sc.past.sameBoot || !t.head`, `if !t.head`}}},

	// What is missing.
	{name: "gap_of_names_accepted", what: "a segment may be missing before one that has no record", found: "TestMissingEnd", rare: true, edits: []edit{{"wal/older.go",
		`case before.seg.id+1 != t.seg.id:`, `case before.seg.id+1 != t.seg.id && t.holds():`}}},
	{name: "headless_segment_accepted", what: "a segment may lack its header although another was made after it", found: "TestMissingEnd", rare: true, edits: []edit{{"wal/older.go",
		`case !before.head:`, `case !before.head && t.holds():`}}},
	{name: "short_files_accepted", what: "a segment's file may have lost its end", found: "TestMissingEnd", rare: true, edits: []edit{{"wal/missing.go",
		`return t.head && t.seg.size < t.seg.head.Size`, `return false`}}},
	{name: "made_flag_not_set", what: "the fence does not say that there is a log", found: "TestMissingEnd", rare: true, edits: []edit{{"wal/fence.go",
		`	f.flags |= flagMade`, ``}}},
	{name: "close_does_not_say_where", what: "the fence does not say that the log was closed at its end", found: "TestCloseNotesThatThereIsALog", rare: true, edits: []edit{{"wal/log.go",
		`f.flags&^flagDirty|flagClosed|flagMade, end`, `f.flags&^flagDirty|flagMade, end`}}},
	{name: "closed_stays", what: "a log that is open still says that it was closed", found: labTest, rare: true, edits: []edit{{"wal/fence.go",
		`f.flags&^flagClosed | flagPowerCut`, `f.flags | flagPowerCut`}}},
	{name: "log_id_unchecked", what: "segments of another log are accepted", found: "TestMissingEnd", rare: true, edits: []edit{{"wal/scan.go",
		`if head.Log != sc.logID {`, `if false {`}}},
	{name: "lost_fence_accepted", what: "segments without the fence beside which they were written are accepted", found: "TestMissingEnd", rare: true, edits: []edit{{"wal/missing.go",
		`		if !t.atomic || !t.holds() {`, `		if true {`}}},
	{name: "older_fence_accepted", what: "a fence is accepted that is older than the segments", found: "TestMissingEnd", rare: true, edits: []edit{{"wal/missing.go",
		`if sc.newest > sc.past.fence.generation {`, `if false {`}}},
	{name: "end_of_another_chain", what: "the log may end where the fence says with other records", found: "TestFenceOfAnotherCopy", rare: true, edits: []edit{{"wal/missing.go",
		`	case !t.reached:`, `	case false:`}}},
	{name: "rebuilt_fence_starts_anew", what: "a fence that is rebuilt has a generation that was used before", found: "TestFenceIsMadeAnew", rare: true, edits: []edit{{"wal/fence.go",
		`max(f.generation, r.scan.newest) + 1`, `f.generation + 1`}}},
	{name: "owner_unchecked", what: "a host opens the log of another", found: "TestOldLogOfAnotherHost", rare: true, edits: []edit{{"wal/scan.go",
		`case head.Owner != sc.owner:`, `case false:`}}},

	// Writes of one group are whole or not there.
	{name: "no_void", what: "a recovery does not write down that a write has no end", found: labTest, rare: true, edits: []edit{{"wal/atomic.go",
		`	if !u.open {
		return false, nil`, `	if true {
		return false, nil`}}},
	{name: "void_in_tail_only", what: "a write that began in a sealed segment is not voided", found: labTest, rare: true, edits: []edit{{"wal/atomic.go",
		`	if !u.open {
		return false, nil`, `	if !u.open || uint64(u.parts[0].segment) != r.log.tail.seg.id {
		return false, nil`}}},
	{name: "end_everywhere", what: "each record of a write begins and ends one", found: labTest, rare: true, edits: []edit{{"wal/atomic.go",
		`		e |= record.Ends
	}
	return e`, `		e |= record.Ends
	}
	return record.Whole`}}},
	{name: "half_writes", what: "a recovery applies what it finds of a write without an end", found: labTest, rare: true, edits: []edit{{"wal/atomic.go",
		`	if !u.open {
		return false, nil`, `	for _, p := range u.parts {
		r.scan.replayPart(r.scan.table.group(u.group), p)
	}
	u.close()
	if !u.open {
		return false, nil`}}},
	{name: "marks_reach_over_a_void", what: "a cold read finds records of a voided write", found: labTest, rare: true, edits: []edit{{"wal/atomic.go",
		`g.index.sever()`, `_ = g`}}},
	{name: "marks_reach_over_a_truncation", what: "a cold read finds entries that were replaced", found: "TestTwinOfManyGroups", edits: []edit{{"wal/index.go",
		`		x.runs[k-1].cut = true // also if`, `		_ = k // also if`}}},

	// A full disk.
	{name: "keep_refused", what: "what was written of a refused append stays on disk", found: "TestRefusedDirectWriteLeavesNothing", edits: []edit{{"wal/space.go",
		`	l.leave(wrote)
	return l.tryWipe()`, `	return nil`}}},
	{name: "full_disk_stops_a_wipe", what: "a log that wanted to remove a refused append stops for good, as the disk has no space for zeros", found: "TestRefusedWipeIsTriedAgain", edits: []edit{{"wal/space.go",
		`	if err := l.wipe(); !isFull(err) {`, `	if err := l.wipe(); true {`}}},
	{name: "append_over_what_is_left", what: "an append does not remove first what a refused one has left", found: "TestRefusedWipeIsTriedAgain", edits: []edit{{"wal/space.go",
		`switch err := l.wipe(); {`, `switch err := error(nil); {`}}},
	{name: "residue_is_damage", what: "after a kill a log takes for damage what a full disk kept it from removing", found: "TestPowerCutBeforeTheWipe", edits: []edit{{"wal/wipe.go",
		`			_ = l.distrustBoot() // if`, `			// if`}}},
	{name: "wipe_not_synced", what: "zeros over a refused append are not durable", found: labTest, rare: true, edits: []edit{{"wal/wipe.go",
		`		if r.begun {`, `		if false {`}}},
	{name: "direct_writes_believed", what: "a direct write that failed is believed to have written nothing", found: "TestRefusedDirectWriteLeavesNothing", edits: []edit{{"wal/blocks.go",
		`		return len(p), err`, `		return n, err`}}},
	{name: "refused_chain_stays", what: "records after a refused append follow on it", found: "TestDiskFullIsRecoverable", edits: []edit{{"wal/space.go",
		`l.tail.seg.end, l.tail.seg.chain, l.tail.idling = u.end, u.chain, u.idling`, `l.tail.seg.end, l.tail.idling = u.end, u.idling`}}},
	{name: "next_segment_takes_the_last_space", what: "a log that is opened again without a reserve makes the next segment first, which leaves no space for the reserve", found: "TestReserveComesBeforeTheNextSegment", edits: []edit{{"wal/prepare.go",
		`if l.supply.starved.Load() {`, `if false {`}}},
	{name: "entries_take_the_reserve", what: "entries use the room that is kept for votes", found: "TestReserveIsForVotesAlsoAfterARestart", edits: []edit{{"wal/space.go",
		`isFull(err) && small && l.supply.hasSpare()`, `isFull(err) && l.supply.hasSpare()`}}},
	{name: "reserve_not_made_again", what: "after the reserve was used there is none", found: "TestReserveThatCannotBeMade", edits: []edit{{"wal/space.go",
		`	if _, err := l.makeReserve(); err != nil {`, `	if err := error(nil); err != nil {`}}},

	// Cleaning.
	{name: "front_not_synced", what: "segments go before it is durable that they may be missing", found: labTest, rare: true, edits: []edit{{"wal/clean.go",
		`	if err := l.syncNow(); err != nil {`, `	if err := error(nil); err != nil {`}}},
	{name: "front_too_far", what: "the segment after those that no group needs goes too", found: labTest, rare: true, edits: []edit{{"wal/clean.go",
		`l.advanceFront(v.needed)`, `l.advanceFront(v.needed + 1)`}}},
	{name: "states_not_needed", what: "the cleaner forgets hard states and bases of segments without entries", found: labTest, rare: true, edits: []edit{{"wal/needs.go",
		`case d.runs == 0 && d.states == 0:`, `case d.runs == 0:`}}},
	{name: "hard_states_not_moved", what: "a hard state is not written again before its segment goes", found: labTest, rare: true, edits: []edit{{"wal/sweep.go",
		`at, err := l.putHardState(g.id, g.hs, oneRecord())`, `at, err := l.tail.seg.id, error(nil)`}}},
	{name: "bases_not_moved", what: "where a log begins is not written again before its segment goes", found: labTest, rare: true, edits: []edit{{"wal/sweep.go",
		`at, err := l.putStart(g.id, record.KindBase, g.start, oneRecord())`, `at, err := l.tail.seg.id, error(nil)`}}},
	{name: "one_entry_not_moved", what: "the last entry of a piece of a sweep is not moved", found: labTest, rare: true, edits: []edit{{"wal/sweep.go",
		`			if !f.wanted {
				continue
			}
			f.moved`, `			if !f.wanted || i > 0 && i == len(found)-1 {
				f.wanted = false
				continue
			}
			f.moved`}}},
	{name: "coarse_marks_begin_too_late", what: "a coarse run begins in the next segment although it has entries in this one", found: "TestTwinOfManyGroups", edits: []edit{{"wal/sweep.go",
		`m.loose != 0 && m.loose != l.table.indexes.epoch)`, `m.last != m.segment)`}}},
	{name: "spans_end_with_their_runs", what: "a sweep does not look for the entries of a coarse run after the last one's place in another segment", found: "TestTwinOfManyGroups", edits: []edit{{"wal/spans.go",
		`if m.last != m.segment {`, `if false {`}}},
	{name: "coarse_marks_cross_a_wall", what: "a coarse run reaches over a segment that does not follow", found: "TestRunsEndAtAWall", edits: []edit{{"wal/needs.go",
		`return k == len(all.walls) || all.walls[k] > last`, `return k <= len(all.walls)`}}},
	{name: "coarse_marks_begin_before_the_front", what: "after a restart a coarse run begins in a segment that is gone", found: "TestTwinOfManyGroups", rare: true, edits: []edit{{"wal/sweep.go",
		`	if front == nil {`, `	if true {`}}},
	{name: "reader_crosses_any_link", what: "a reader goes on in a segment that says that another came before it", same: "the links were checked at Open, and are written by us", edits: []edit{{"wal/walk.go",
		`if link.Kind != record.KindLink || record.ParseLink(link, body) != from {`, `if link.Kind != record.KindLink || record.ParseLink(link, body).Segment != from.Segment {`}}},
	{name: "moved_joined_over_a_void", what: "a moved entry is joined to one before a voided write", found: "TestMovedEntryIsNotJoinedOverAVoid", edits: []edit{{"wal/index.go",
		`!next && k > 0 && x.runs[k].lo == i {`, `!next && k > 0 && x.runs[k].lo == i && i == 0 {`}}},
	{name: "deletion_not_replayed", what: "a group that was deleted is back after a restart", found: labTest, rare: true, edits: []edit{{"wal/replay.go",
		`	case record.KindDeletion:
		g.forget()
		sc.table.bury(g.id, uint64(p.segment))`, `	case record.KindDeletion:`}}},
	{name: "moved_replayed_as_entry", what: "a moved entry replaces what stands above it", found: labTest, rare: true, edits: []edit{{"wal/replay.go",
		`g.move(p.index`, `g.setPlace(p.index`}}},
	{name: "moved_shown_before_written", what: "readers are sent to moved entries before those are written", found: labTest, rare: true, edits: []edit{{"wal/clean.go",
		`	if err := l.writeOut(before, bytes); err != nil {`, `	publish()
	if err := l.writeOut(before, bytes); err != nil {`}}},
	{name: "unroll_leaves_the_next", what: "a refused append that rolled leaves records in the next segment", found: "TestRefusedRollLeavesNothing", rare: true, edits: []edit{{"wal/space.go",
		`	if wrote > 0 {
		l.leave`, `	if false {
		l.leave`}}},
	{name: "unroll_leaves_the_sealed", what: "a refused append that rolled leaves records in the segment before", found: "TestRefusedRollLeavesNothing", rare: true, edits: []edit{{"wal/space.go",
		`	l.leave(int(reached - l.tail.bufAt))`, `	_ = reached`}}},
	{name: "growth_not_synced", what: "a segment gets a large record before its new length is durable", found: "TestGrownSegmentInACrash", rare: true, edits: []edit{{"wal/space.go",
		`	if err := l.syncSegment(s); err != nil { // so`, `	if err := error(nil); err != nil { // so`}}},

	{name: "descriptors_are_final", what: "a log for which there is no descriptor for a moment stops for good", found: "TestOutOfDescriptors", edits: []edit{{"wal/space.go",
		`	return isFull(err) || vfs.IsShort(err)`, `	return isFull(err) || err == nil && vfs.IsShort(err)`}}},
	{name: "directory_opened_anew", what: "the log opens its directory for each sync of it, and takes the error of that open for one of the sync", found: "TestNoOpenEndsTheLog", edits: []edit{{"wal/segment.go",
		`if err := l.names.Sync(); err != nil {`, `if err := vfs.SyncDir(l.opts.FS, l.opts.Dir); err != nil {`}}},
	{name: "fence_opened_anew", what: "the log opens FENCE each time that it writes it, and an open that fails ends the log", found: "TestNoOpenEndsTheLog", edits: []edit{{"wal/fence.go",
		`	if err := writeCopies(l.fence.file, f, 0); err != nil { // both`, `	if err := l.dir.writeFence(f, 0); err != nil { // both`}}},

	// What a judge has planted (docs/track-record.md).
	{name: "unroll_keeps_durable", what: "a roll that is taken back leaves the durable position in the next segment, and a vote counts without a sync", found: "TestAVoteAfterARefusedRollIsSynced", edits: []edit{{"wal/space.go",
		`l.tail.seg, l.tail.sealed, l.flusher.durable, l.tail.idling = u.tail, u.sealed, u.durable, u.idling`, `l.tail.seg, l.tail.sealed, l.tail.idling = u.tail, u.sealed, u.idling`}}},
	{name: "state_hole_ignored", what: "a member whose vote was lost in a repair counts again in the same term", found: "TestAHoleOfAVoteIsOpenInItsTerm", edits: []edit{{"wal/loss.go",
		` || h.State && h.Term == g.hs.Term`, ``}}},
	{name: "moved_without_type", what: "an entry that a sweep moves has no type in memory, and a change of the members is not found", found: "TestASweepKeepsTypes", edits: []edit{{"wal/sweep.go",
		`g.move(f.Index, f.Term, f.Type, f.moved)`, `g.move(f.Index, f.Term, 0, f.moved)`}}},
	{name: "replaced_entry_moved", what: "a sweep moves an entry that was replaced since it has read it", found: "TestAReplacedEntryIsNotMoved", edits: []edit{{"wal/sweep.go",
		`f.wanted = l.stands(f); f.wanted`, `f.wanted = true; f.wanted`}}},
	{name: "vote_of_a_cut_write_kept", what: "a term or vote that is a part of a write that damage cuts through is not counted as lost", found: "TestDamageTakesTheVoteOfAWrite", edits: []edit{{"wal/losses.go",
		`case p.kind == record.KindHardState && in`, `case false && in`}}},
	{name: "older_vote_replaces_the_lost", what: "a vote before the damage, in the same segment, counts as one that replaced what is lost", found: "TestDamageTakesTheLastVote", edits: []edit{
		{"wal/losses.go", `.hsAt <= uint64(p.segment)`, `.hsAt < uint64(p.segment)`}, {"wal/losses.go", `.hsAt <= u.segment`, `.hsAt < u.segment`}}},
	{name: "later_vote_replaces_nothing", what: "a vote that was written again behind the damage is counted as lost", found: "TestDamageTakesTheLastVote", edits: []edit{
		{"wal/losses.go", `.hsAt <= uint64(p.segment) `, `.hsAt <= uint64(p.segment)+99 `}, {"wal/losses.go", `.hsAt <= u.segment`, `.hsAt <= u.segment+99`}}},
	{name: "parts_count_without_an_end", what: "the parts of a write count without its end", found: "TestNoPartOfADamagedWriteCounts", edits: []edit{{"wal/atomic.go",
		`	if h.Edge&record.Ends == 0 {
		return
	}
	for`, `	if false {
		return
	}
	for`}}},
	{name: "discard_not_synced", what: "segments that were discarded come back", found: "TestDiscardIsRepeatedAfterACut", edits: []edit{{"wal/discard.go",
		`		if err := vfs.SyncDir(fsys, dir); err != nil {`, `		if err := error(nil); err != nil {`}}},

	// What takes two threads on one log (the laboratory with threads).
	{name: "claim_not_held", what: "the helper and an append make the same segment at once", found: "TestThreads", edits: []edit{{"wal/prepare.go",
		`	l.supply.claim()
	defer l.supply.release()
	if l.supply.starved`, `	if l.supply.starved`}}},
	{name: "tail_taken_for_synced", what: "a flush that synced the segment before the tail takes the tail for synced, too", found: "TestThreads", edits: []edit{{"wal/sync.go",
		`	if older == f.tail { // it was sealed since the flush was taken
		return nil
	}`, `	if older != nil {
		return nil
	}`}}},
	{name: "close_beside_a_flush", what: "Close waits for a flush with the lock of the appends, so an append waits for the disk instead of being refused", found: "TestCloseBesideAFlush", edits: []edit{{"wal/log.go",
		`	l.flusher.mu.Lock() // after a flush that is under way
	defer l.flusher.mu.Unlock()
`, ``}}},
	{name: "mark_beside_a_flush", what: "the log writes a watermark record while a flush is under way, and needs one more flush for it", found: "TestNoWatermarkRecordBesideAFlush", edits: []edit{{"wal/idle.go",
		`flushComes := l.flusher.inFlight > 0 || `, `flushComes := `}}},
	{name: "mark_forgotten_beside_a_flush", what: "a flush that is completed late leaves the log without a watermark record", found: "TestNoWatermarkRecordBesideAFlush", edits: []edit{{"wal/sync.go",
		`if !l.tail.idling.armed { //`, `if false { //`}}},

	// The fence.
	{name: "fence_not_synced", what: "the fence is written over and not synced", found: labTest, rare: true, edits: []edit{{"wal/fencefile.go",
		`		if err := file.Sync(); err != nil {`, `		if err := error(nil); err != nil {`}}},
	{name: "fence_name_not_synced", what: "the name of a fence is not durable", found: "TestFenceHasItsNameBeforeASegmentIsMade", rare: true, edits: []edit{{"wal/fencefile.go",
		`	return vfs.SyncDir(disk, d.path)`, `	return nil`}}},
	{name: "fence_copies_under_one_sync", what: "both copies of the fence are written before either is durable", same: "a copy is in one sector, which is old or new", edits: []edit{{"wal/fencefile.go",
		`		if err := file.Sync(); err != nil {`, `		if i != last {
			continue
		}
		if err := file.Sync(); err != nil {`}}},
	{name: "generation_stays", what: "an open does not raise the generation", found: labTest, rare: true, edits: []edit{{"wal/fence.go",
		`max(f.generation, r.scan.newest) + 1`, `max(f.generation, r.scan.newest, 1)`}}},
	{name: "never_dirty", what: "the fence does not say that an unsafe mode has begun", found: labTest, rare: true, edits: []edit{{"wal/fence.go",
		`		f.flags |= flagDirty`, `		f.flags |= 0`}}},
	{name: "boot_not_compared", what: "a power cut in an unsafe mode is taken for the death of a process", found: labTest, rare: true, edits: []edit{{"wal/fence.go",
		`(r.scan.past.boot == "" || r.scan.past.boot != f.boot)`, `r.scan.past.boot == ""`}}},
	{name: "salvage_without_amnesia", what: "a log that lost entries to damage may vote", found: "TestSalvageEveryFlip", rare: true, edits: []edit{{"wal/fence.go",
		`		f.flags |= flagAmnesia // before anything is set aside`, `		f.flags |= 0`}}},
	{name: "salvage_keeps_terms", what: "a log that may lack votes says that it lacks entries only", found: "TestFenceIsMadeAnew", edits: []edit{{"wal/fence.go",
		`		f.flags |= flagTerms`, `		f.flags |= 0`}}},
	{name: "salvage_keeps_old_terms", what: "a salvaged group is in an earlier term than its last entry", found: "TestRepairIsRepeatable", edits: []edit{{"wal/recover.go",
		`salvaged && err == nil && g.hs.Term < term`, `false && err == nil && g.hs.Term < term`}}},
	{name: "caught_up_without_sync", what: "a member that caught up counts before what it caught up with is durable", found: "TestSalvageEveryFlip", edits: []edit{{"wal/fence.go",
		`	if err := l.syncNow(); err != nil {`, `	if err := error(nil); err != nil {`}}},
	{name: "loss_not_admitted", what: "an unsafe log that is closed after its disk failed does not say so", found: "TestFence", edits: []edit{{"wal/log.go",
		`	case l.opts.Mode.Unsafe():`, `	case false:`}}},
	{name: "commit_below_the_base", what: "a commit index is below what was compacted", found: labTest, rare: true, edits: []edit{{"wal/group.go",
		`hs.Commit = max(hs.Commit, g.start.Index)`, `_ = hs`}}},
}
