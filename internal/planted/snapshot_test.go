package planted_test

// objectBugs are bugs of the same package, and of object/files, that matter to large objects: the object is
// said to be here, and a power cut takes it.
var objectBugs = []bug{
	{name: "object_published_before_parts_have_names", in: "object/files", what: "an object is here before the names of its parts are durable", found: "TestCrashesLeaveObjectsWhole", edits: []edit{{"snapshot/writer.go",
		`if err := w.names.Sync(); err != nil {`, `if err := error(nil); err != nil {`}}},
	{name: "object_directory_not_synced", in: "object/files", what: "an object is here before its manifest has a durable name", found: "TestCrashesLeaveObjectsWhole", edits: []edit{{"snapshot/writer.go",
		`	return w.names.Sync()
`, `	return nil
`}}},
	{name: "object_fetched_not_published_durably", in: "object/files", what: "an object that was fetched is here before its manifest has a durable name", found: "TestCrashesLeaveObjectsWhole", edits: []edit{{"snapshot/receiver.go",
		`	if err := r.names.Sync(); err != nil {
		return r.fail(err)
	}
	r.ended`, `	r.ended`}}},
	{name: "object_taken_unseen", in: "object/files", what: "what a snapshot has under the id of an object is taken for it, whatever it is", found: "TestTakingIsRefused", edits: []edit{{"object/files/parts.go",
		`	if err := RejectManifest(&m, bytes, hash); err != nil {`, `	if err := error(nil); err != nil {`}}},
}

// snapshotBugs are bugs in package snapshot: a sync left out, a check forgotten, an order reversed.
var snapshotBugs = []bug{
	// Taking and publishing.
	{name: "snapshot_published_before_parts_have_names", in: "snapshot", what: "a snapshot is published before the names of its parts are durable", found: "TestPowerCutsAtEachOperation", edits: []edit{{"snapshot/writer.go",
		`if err := w.names.Sync(); err != nil {`, `if err := error(nil); err != nil {`}}},
	{name: "snapshot_part_not_synced", in: "snapshot", what: "a snapshot is published before a part of a stream is durable", found: "TestPowerCutsAtEachOperation", edits: []edit{{"snapshot/writer.go",
		`	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	s.part.SHA256`, `	if err := f.Close(); err != nil {
		return err
	}
	s.part.SHA256`}}},
	{name: "snapshot_linked_file_not_synced", in: "snapshot", what: "a snapshot is published before a linked file is durable", found: "TestPowerCutsAtEachOperation", edits: []edit{{"snapshot/writer.go",
		`		err = f.Sync()
`, ``}}},
	{name: "snapshot_manifest_not_synced", in: "snapshot", what: "a manifest is renamed before it is durable", found: "TestPowerCutsAtEachOperation", edits: []edit{{"snapshot/files.go",
		`	return f.Sync()
`, `	return nil
`}}},
	{name: "snapshot_publish_not_synced", in: "snapshot", what: "a snapshot counts before its manifest has a durable name", found: "TestPowerCutsAtEachOperation", edits: []edit{{"snapshot/writer.go",
		`	return w.names.Sync()
`, `	return nil
`}}},
	{name: "snapshot_open_trusts_names", in: "snapshot", what: "a store lists a manifest whose name the process before it did not sync", found: "TestProcessDiesAtEachOperation", edits: []edit{{"snapshot/store.go",
		`	if err := vfs.SyncDir(s.fs, dir); err != nil {
		return fmt.Errorf("snapshot: sync %s: %w", dir, err)
	}
`, ``}}},

	// Reading back.
	{name: "snapshot_block_not_compared", in: "snapshot", what: "a block with another checksum is handed out", found: "TestDamageIsFound", edits: []edit{{"snapshot/files.go",
		`have != p.Sums[block] {`, `have != p.Sums[block] && len(buf) == 0 {`}}},
	{name: "snapshot_equal_not_verified", in: "snapshot", what: "a file is not read back, because a verified snapshot has another file with the same content", found: "TestUnchangedFileIsNotRead", edits: []edit{{"snapshot/store.go",
		`same && err == nil {
				continue`, `same || err == nil {
				continue`}}},
	{name: "snapshot_sum_not_compared", in: "snapshot", what: "a part with another SHA-256 is published", found: "TestFinishFindsForgedBlocks", edits: []edit{{"snapshot/files.go",
		`sum != p.SHA256 {`, `len(sum) == 0 {`}}},
	{name: "snapshot_manifest_check_unread", in: "snapshot", what: "a manifest with another CRC32C is read", found: "TestEveryBitOfAManifestCounts", edits: []edit{{"snapshot/codec.go",
		`want != have {`, `want != have && len(b) == headBytes {`}}},

	// Removing.
	{name: "snapshot_parts_removed_first", in: "snapshot", what: "parts are removed before the removal of the manifest is durable", found: "TestPowerCutsAtEachOperation", edits: []edit{{"snapshot/removal.go",
		`	if err := d.Sync(); err != nil {
		stuck := `, `	if err := error(nil); err != nil {
		stuck := `}}},
	{name: "snapshot_removal_tried_again", in: "snapshot", what: "a sync of a directory that failed is tried again, and believed", found: "TestRemovalIsNotTriedAgainAfterAFailedSync", edits: []edit{{"snapshot/removal.go",
		`		s.stuck[id] = stuck
`, ``}}},
	{name: "snapshot_open_taken_for_a_sync", in: "snapshot", what: "a directory that cannot be opened for a moment is taken for one whose sync failed, and stays until the next start", found: "TestNoOpenEndsASnapshot", edits: []edit{{"snapshot/removal.go",
		`	d, err := s.fs.OpenDir(dir)
	if err != nil {
`, `	d, err := s.fs.OpenDir(dir)
	if err != nil {
		s.mu.Lock()
		s.stuck[id] = &StuckError{ID: id, Dir: dir, Err: err}
		s.mu.Unlock()
`}}},
	{name: "snapshot_received_part_dropped_without_descriptor", in: "snapshot", what: "what was received of a part is thrown away when it cannot be opened for a moment", found: "TestNoOpenEndsASnapshot", edits: []edit{{"snapshot/receiver.go",
		`	if vfs.IsShort(err) {
		return err // what`, `	if false {
		return err // what`}}},
	{name: "object_removed_without_the_directory_above", in: "object/files", what: "an object whose directory is gone, and was not made durable, can never be removed", found: "TestNoOpenEndsAnObject", edits: []edit{{"object/files/store.go",
		`	above, err := s.fs.OpenDir(s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, above.Close()) }()
	if err := s.fs.RemoveDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return above.Sync()`, `	return errors.Join(err, s.fs.RemoveDir(dir), vfs.SyncDir(s.fs, s.dir))`}}},
	{name: "snapshot_pruned_in_use", in: "snapshot", what: "a snapshot that is being sent is removed", found: "TestPrune", edits: []edit{{"snapshot/removal.go",
		`e.pins == 0 && `, `e.pins >= 0 && `}}},
	{name: "snapshot_pruned_unverified", in: "snapshot", what: "a snapshot is removed for a newer one that was not read back", found: "TestPrune", edits: []edit{{"snapshot/removal.go",
		`if e.verified && id`, `if e != nil && id`}}},

	// Receiving.
	{name: "snapshot_any_block_taken", in: "snapshot", what: "a received block is not compared with the offer", found: "TestPutRefuses", edits: []edit{{"snapshot/receiver.go",
		`have != p.Sums[block+b] {`, `have != p.Sums[block+b] && n == 0 {`}}},
	{name: "snapshot_resumes_with_foreign_parts", in: "snapshot", what: "a receive continues with complete parts of another offer", found: "TestAnotherOfferWithTheSameID", edits: []edit{{"snapshot/resume.go",
		`err = verifyFile(ctx, r.store.fs, filepath.Join(r.dir, name), r.m, i)`, `err = nil`}}},
	{name: "snapshot_resumes_with_foreign_blocks", in: "snapshot", what: "a receive continues with blocks that the offer does not name", found: "TestRandomReceives", edits: []edit{{"snapshot/resume.go",
		`if readBlock(f, p, b, piece) != nil {`, `if n, _ := f.ReadAt(piece, b*BlockBytes); n < len(piece) {`}}},
	{name: "snapshot_received_part_not_synced", in: "snapshot", what: "a received part is published before it is durable", found: "TestPowerCutsAtEachOperation", edits: []edit{{"snapshot/receiver.go",
		`	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		if r.parts`, `	if err == nil {
		err = f.Close()
	}
	if err != nil {
		if r.parts`}}},
	{name: "snapshot_received_names_not_synced", in: "snapshot", what: "a received snapshot is published before the names of its parts are durable", found: "TestPowerCutsAtEachOperation", edits: []edit{{"snapshot/receiver.go",
		`	if err := r.names.Sync(); err != nil {
		return r.fail(err)
	}
	r.complete`, `	r.complete`}}},
	{name: "snapshot_received_not_published_durably", in: "snapshot", what: "a received snapshot counts before its manifest has a durable name", found: "TestPowerCutsAtEachOperation", edits: []edit{{"snapshot/receiver.go",
		`	if err := r.names.Sync(); err != nil {
		return r.fail(err)
	}
	r.ended`, `	r.ended`}}},
	{name: "snapshot_part_kept_after_failed_sync", in: "snapshot", what: "a received part whose sync failed is synced again, and believed", found: "TestFailedSyncsOfAReceiver", edits: []edit{{"snapshot/receiver.go",
		`		if r.parts[i].begun {
			return errors.Join(fmt.Errorf("sync %s: %w", recv, err), r.drop(i))
		}
`, ``}}},
	{name: "snapshot_part_kept_after_failed_write_back", in: "snapshot", what: "blocks count although their part could not be written back", found: "TestAFailedWriteBackInTheMidstOfAPart", edits: []edit{{"snapshot/receiver.go",
		`fmt.Errorf("write back %s: %w", recv, err), r.drop(i))`, `fmt.Errorf("write back %s: %w", recv, err))`}}},
	{name: "snapshot_written_back_at_the_end", in: "snapshot", what: "a part is written back as a whole, and holds up the log", found: "TestLittleWaitsForASync", edits: []edit{{"snapshot/writeback.go",
		`p.waits < p.every {`, `p.waits < p.every<<20 {`}}},
	{name: "snapshot_small_parts_written_back_at_the_end", in: "snapshot", what: "of many small parts, only the one that was written last is written back", found: "TestLittleWaitsForASync", edits: []edit{{"snapshot/receiver.go",
		`range r.written {`, `range r.written[len(r.written)-1:] {`}}},
	{name: "snapshot_small_parts_not_waited_for", in: "snapshot", what: "what the disk was given of many small parts is not waited for", found: "TestLittleWaitsForASync", edits: []edit{{"snapshot/receiver.go",
		`	r.written = given
`, `	r.written = given[:0]
`}}},
	{name: "snapshot_write_back_never_waits", in: "snapshot", what: "the disk is given more and more of a part", found: "TestTheDiskIsGivenAllAndWaitedFor", edits: []edit{{"snapshot/writeback.go",
		`vfs.WriteBack(f, next, last)`, `vfs.WriteBack(f, next, vfs.Span{Bytes: last.Bytes * 0})`}}},
	{name: "snapshot_resumed_blocks_not_written_again", in: "snapshot", what: "what a sync failed on before a restart is taken for durable after it", found: "TestSyncFailsAndTheProcessDies", edits: []edit{{"snapshot/resume.go",
		`f.WriteAt(piece, b*BlockBytes)`, `f.WriteAt(piece[:0], b*BlockBytes)`}}},
}
