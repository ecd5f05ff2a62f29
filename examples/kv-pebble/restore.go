package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/millrace/millrace"
)

// Restore implements millrace.StateMachine. The snapshots of a store have files, so the host never calls it.
func (s *store) Restore(context.Context, io.Reader) error {
	return errors.New("a snapshot without files is not one of this program")
}

// RestoreFiles implements millrace.FileRestorer. It makes a database of the files beside the present one,
// opens it, and only then makes it the one of the store (directory.go).
func (s *store) RestoreFiles(ctx context.Context, r io.Reader, files millrace.SnapshotFiles) (err error) {
	s.disk.Lock()
	defer s.disk.Unlock()
	s.mu.RLock()
	pending, number := s.heldFor, s.number+1
	s.mu.RUnlock()
	if pending != nil {
		pending.make() // of the state that it was asked for
	}
	applied, err := readStream(r)
	if err != nil {
		return err
	}
	dir := s.databaseDir(number)
	db, m, err := s.buildDatabase(ctx, dir, files)
	if err == nil && m.applied != applied {
		err = errors.Join(fmt.Errorf("the files of the snapshot have applied entry %d, and its stream says %d", m.applied, applied), db.close())
	}
	if err != nil {
		return errors.Join(err, s.fs.RemoveAll(dir))
	}
	if err := s.writeCurrent(number); err != nil {
		s.db.fail(err) // which of the two CURRENT names is not known
		return errors.Join(err, db.close())
	}
	s.mu.Lock()
	old, oldDir := s.db, s.databaseDir(s.number)
	s.db, s.number, s.meta, s.durable = db, number, m, m.applied
	s.held, s.heldBytes, s.heldFor = nil, 0, nil
	s.mu.Unlock()
	s.setTimers(db.ends)
	if err := errors.Join(old.close(), s.fs.RemoveAll(oldDir)); err != nil { // the next start removes what is left
		slog.Warn("kv-pebble: a database that was replaced is still there", "dir", oldDir, "err", err)
	}
	return nil
}

// readStream reads the stream of a snapshot, and returns the index of its last command.
func readStream(r io.Reader) (applied uint64, err error) {
	b, err := io.ReadAll(io.LimitReader(r, int64(streamBytes)+1))
	switch {
	case err != nil:
		return 0, fmt.Errorf("the stream of the snapshot: %w", err)
	case len(b) != streamBytes || string(b[:len(streamFormat)]) != streamFormat:
		return 0, fmt.Errorf("the stream of the snapshot is %.40q with %d bytes, want %q and 8 bytes; did another version of this program write it?", b, len(b), streamFormat)
	}
	return binary.BigEndian.Uint64(b[len(streamFormat):]), nil
}

// buildDatabase makes a database of the files of a snapshot, durably, and opens it.
func (s *store) buildDatabase(ctx context.Context, dir string, files millrace.SnapshotFiles) (*database, meta, error) {
	if err := s.fs.RemoveAll(dir); err != nil {
		return nil, meta{}, err
	}
	if err := makeDir(s.fs, dir); err != nil {
		return nil, meta{}, err
	}
	for _, name := range files.Names() {
		err := ctx.Err()
		if err == nil {
			err = rejectFile(name)
		}
		if err == nil {
			err = s.takeFile(files, name, s.fs.PathJoin(dir, name))
		}
		if err != nil {
			return nil, meta{}, fmt.Errorf("file %q of the snapshot: %w", name, err)
		}
	}
	if err := syncDir(s.fs, dir); err != nil {
		return nil, meta{}, err
	}
	return openDatabase(s.fs, dir)
}

// takeFile makes a file of a snapshot one of a database: a table by a link, as it never changes.
func (s *store) takeFile(files millrace.SnapshotFiles, name, path string) (err error) {
	if isTable(name) {
		if err := files.Link(name, path); !errors.Is(err, errors.ErrUnsupported) {
			return err
		}
	}
	r, err := files.Open(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return writeFile(s.fs, path, r)
}
