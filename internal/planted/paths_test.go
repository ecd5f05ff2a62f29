package planted_test

// Bugs about the paths of a host, and about the directory that it has locked.
var pathBugs = []bug{
	{name: "dir_stays_relative", what: "a host uses a relative directory as it is, after the working directory has changed", in: ".", found: "TestWorkingDirectoryChanges", also: []judge{{in: "sim", test: "TestSeeds", args: "-seeds 1", says: "does not lead to the directory that this process has locked"}}, edits: []edit{{"host/paths.go",
		`	if c.Dir, err = vfs.Absolute(fsys, c.Dir); err != nil {`, `	if _, err = vfs.Absolute(fsys, c.Dir); err != nil {`}}},
	{name: "certificates_stay_relative", what: "a host reads its certificates again by paths that are relative", in: "host", found: "TestNoPathOfConfigIsRelative", edits: []edit{{"host/paths.go",
		`		if *file.path, err = filepath.Abs(*file.path); err != nil {`, `		if _, err = filepath.Abs(*file.path); err != nil {`}}},
	{name: "wrapped_disk_has_no_working_directory", what: "a path on a filesystem that wraps the machine's is not made absolute", in: "vfs", found: "TestAbsolute", edits: []edit{{"vfs/absolute.go",
		`		return Absolute(f.below(), path)`, `		return path, nil`}}},
	{name: "snapshot_beside_no_lock", what: "a host takes a snapshot in a directory that it has not locked, and the log forgets", in: ".", found: "TestDirectoryIsMovedAway", also: []judge{{in: "sim", test: "TestSeeds", args: "-first 131 -seeds 1", says: "keeps-to-its-directory"}}, edits: []edit{{"host/internal/identity/directory.go",
		`fs: vfs.Owned(fsys, lock, c.Dir), `, `fs: fsys, `}}},
	{name: "directory_made_beside_no_lock", what: "directories are made in a directory that took the place of the one that is locked", in: "vfs", found: "TestOwnedMakesNothingBesideNoLock", also: []judge{{in: "sim", test: "TestSeeds", args: "-first 164 -seeds 1", says: "keeps-to-its-directory"}}, edits: []edit{{"vfs/owner.go",
		`o.change(func() error { return o.FS.MkdirAll(dir) })`, `o.FS.MkdirAll(dir)`}}},
	{name: "synced_beside_no_lock", what: "the sync of a directory counts although the path leads to another one by then", in: "vfs/crashfs", found: "TestCover", edits: []edit{{"vfs/owner.go",
		`	return d.of.leads()`, `	return nil`}}},
	{name: "found_beside_no_lock", what: "what is found, or missing, in the place of the directory that is locked is believed", in: "vfs/crashfs", found: "TestCover", also: []judge{{in: "sim", test: "TestSeeds", args: "-first 131 -seeds 1", says: "keeps-to-its-directory"}}, edits: []edit{{"vfs/owner.go",
		`	if err := o.leads(); err != nil {
		var none T
		return none, err
	}
	return do(name)`, `	return do(name)`}}},
	{name: "cold_read_beside_no_lock", what: "a read of a cold segment believes what took the place of the log's directory", found: "TestColdSegmentOfAMovedDirectory", edits: []edit{{"wal/recover.go",
		`l.table.dir.fs, l.table.cold.fs, r.scan.dir.fs = l.opts.FS, l.opts.FS, l.opts.FS`,
		`l.table.dir.fs, r.scan.dir.fs = l.opts.FS, l.opts.FS`}}},
	{name: "log_beside_no_lock", what: "a log makes its segments in a directory that took the place of its own, and loses them with it", found: "TestDirectoryIsMovedAway", also: []judge{{in: "sim", test: "TestSeeds", args: "-first 131 -seeds 1", says: "beside the directory that it has locked"}}, edits: []edit{{"wal/recover.go",
		`l.lock, l.opts.FS = lock, vfs.Owned(l.opts.FS, lock, l.opts.Dir)`, `l.lock = lock`}}},
}
