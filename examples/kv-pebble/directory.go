package main

import (
	"errors"
	"fmt"
	"io"
	iofs "io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// A store's directory:
//
//	CURRENT             the name of the database, such as db-000002
//	db-000002/          the database
//	db-000003/          one that is being restored, or was replaced
//	checkpoint-000001/  a snapshot that is being written
//
// A rename of CURRENT replaces a database by another one, which is whole and synced by then. So a crash
// leaves the old one or the new one. Everything that CURRENT does not name is removed at the next start.
const (
	currentFile      = "CURRENT"
	databasePrefix   = "db-"
	checkpointPrefix = "checkpoint-"
	maxCurrentBytes  = 64
)

func (s *store) databaseDir(n int) string {
	return s.fs.PathJoin(s.dir, fmt.Sprintf("%s%06d", databasePrefix, n))
}

func (s *store) checkpointDir(n int) string {
	return s.fs.PathJoin(s.dir, fmt.Sprintf("%s%06d", checkpointPrefix, n))
}

// openStore opens the store in a directory, which it makes if it is missing.
func openStore(fs vfs.FS, dir string) (_ *store, err error) {
	s := &store{fs: fs, dir: dir}
	if err := makeDir(fs, dir); err != nil {
		return nil, fmt.Errorf("make directory %s: %w", dir, err)
	}
	if s.number, err = s.readCurrent(); err != nil {
		return nil, err
	}
	if s.number == 0 {
		if err := s.writeCurrent(1); err != nil {
			return nil, err
		}
		s.number = 1
	}
	if s.db, s.meta, err = openDatabase(fs, s.databaseDir(s.number)); err != nil {
		return nil, err
	}
	s.durable = s.meta.applied
	s.setTimers(s.db.ends)
	if err := s.removeLeftovers(); err != nil { // after the database is open: no other process has it
		return nil, errors.Join(err, s.db.close())
	}
	return s, nil
}

// readCurrent returns the number of the database; 0: there is none yet. If a database is not there it is
// empty, and the node restores it from a snapshot.
func (s *store) readCurrent() (number int, err error) {
	name := s.fs.PathJoin(s.dir, currentFile)
	f, err := s.fs.Open(name)
	if errors.Is(err, iofs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	b, err := io.ReadAll(io.LimitReader(f, maxCurrentBytes))
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	text := strings.TrimSuffix(strings.TrimPrefix(string(b), databasePrefix), "\n")
	number, err = strconv.Atoi(text)
	if err != nil || number < 1 || currentText(number) != string(b) {
		return 0, fmt.Errorf("%s has %.80q, want the name of a database such as %q; remove the directory %s, and the node restores it from its snapshot", name, b, currentText(1), s.dir)
	}
	return number, nil
}

func currentText(number int) string { return fmt.Sprintf("%s%06d\n", databasePrefix, number) }

// writeCurrent makes a database the one of the store, durably. It must be durable itself.
func (s *store) writeCurrent(number int) error {
	name := s.fs.PathJoin(s.dir, currentFile)
	if err := writeFile(s.fs, name+".tmp", strings.NewReader(currentText(number))); err != nil {
		return err
	}
	if err := s.fs.Rename(name+".tmp", name); err != nil {
		return err
	}
	return syncDir(s.fs, s.dir)
}

// removeLeftovers removes what CURRENT does not name.
func (s *store) removeLeftovers() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		path := s.fs.PathJoin(s.dir, name)
		if strings.HasPrefix(name, checkpointPrefix) || strings.HasPrefix(name, databasePrefix) && path != s.databaseDir(s.number) {
			if err := s.fs.RemoveAll(path); err != nil {
				return fmt.Errorf("remove %s, which is left of an earlier start: %w", path, err)
			}
		}
	}
	return nil
}

// makeDir makes a directory and those above it that are missing, durably.
func makeDir(fs vfs.FS, dir string) error {
	above := fs.PathDir(dir)
	if _, err := fs.Stat(dir); errors.Is(err, iofs.ErrNotExist) && above != dir {
		if err := makeDir(fs, above); err != nil {
			return err
		}
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(syncDir(fs, above), syncDir(fs, dir))
}

func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeFile writes a file, replaces one of the same name, and syncs it.
func writeFile(fs vfs.FS, name string, content io.Reader) (err error) {
	f, err := fs.Create(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, content); err != nil {
		return err
	}
	return f.Sync()
}
