package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/millrace/millrace"
)

// checkpoint is a snapshot: Pebble's own checkpoint, a directory of links to its tables, which never change,
// and of a few small files. Its tables become parts of a Millrace snapshot by links as well.
//
// A checkpoint takes a flush, and some syncs: too long for Snapshot, since nothing is applied until that
// returns. And Pebble makes one of what it has when its flush has ended, which is more than it had when
// Snapshot was called. So Snapshot only says that from now on changes are held in memory, in front of the
// database. WriteTo makes the checkpoint, of a database that stands still, and then the database gets the
// changes in one batch.
//
// Rejected: a checkpoint within Snapshot, which stops the group for a flush; Pebble's log, of which a
// checkpoint has a copy and needs no flush, since each command would be written to two logs; an iterator in
// place of the files, which costs the whole state each time.
type checkpoint struct {
	store   *store
	applied uint64 // index of the last command
	dir     string
	files   []millrace.SnapshotFile

	// Guarded by store.disk.
	made bool
	err  error
}

// maxHeldBytes bounds the changes in front of the database. When there are more, Apply waits for the
// checkpoint.
const maxHeldBytes = 16 << 20

// Snapshot implements millrace.StateMachine.
func (s *store) Snapshot() (millrace.Snapshot, error) {
	if err := s.finishCheckpoint(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	c := &checkpoint{store: s, applied: s.meta.applied, dir: s.checkpointDir(s.next)}
	s.held, s.heldBytes, s.heldFor = changes{}, 0, c
	return c, nil
}

// hold adds changes to those that are held. The caller holds mu and applying.
func (s *store) hold(new changes) {
	for key, i := range new {
		s.held[key] = i
		if s.heldBytes += len(key) + itemOverhead; i != nil {
			s.heldBytes += len(i.Value)
		}
	}
}

// itemOverhead is the memory of an item besides its bytes, about.
const itemOverhead = 128

// limitHeld bounds what is held.
func (s *store) limitHeld() error {
	s.mu.RLock()
	full := s.heldBytes > maxHeldBytes
	s.mu.RUnlock()
	if !full {
		return nil
	}
	return s.finishCheckpoint()
}

// finishCheckpoint makes the checkpoint that changes are held for, if there is one. That it cannot be made is
// for its WriteTo to say; the error is that of the database.
func (s *store) finishCheckpoint() error {
	s.mu.RLock()
	c, db := s.heldFor, s.db
	s.mu.RUnlock()
	if c != nil {
		s.disk.Lock()
		defer s.disk.Unlock()
		c.make()
	}
	return db.err()
}

// make makes the checkpoint, once. The caller holds store.disk.
func (c *checkpoint) make() {
	if c.made {
		return
	}
	c.made = true
	if c.err = c.store.flush(); c.err == nil {
		c.err = c.store.db.Checkpoint(c.dir)
	}
	if c.err == nil {
		c.files, c.err = list(c.store.fs, c.dir)
	}
	c.err = errors.Join(c.err, c.store.release())
}

// release gives the changes that are held to the database. The caller holds disk. Apply waits meanwhile,
// requests do not.
func (s *store) release() error {
	s.applying.Lock()
	defer s.applying.Unlock()
	if len(s.held) > 0 {
		if err := s.db.write(s.held, s.meta); err != nil {
			s.db.fail(err) // its state is not the one that requests see
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held, s.heldBytes, s.heldFor = nil, 0, nil
	return nil
}

// list returns the files of a checkpoint.
func list(fs vfs.FS, dir string) (files []millrace.SnapshotFile, err error) {
	names, err := fs.List(dir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := rejectFile(name); err != nil {
			return nil, fmt.Errorf("checkpoint %s: %w", dir, err)
		}
		files = append(files, millrace.SnapshotFile{Name: name, Path: fs.PathJoin(dir, name)})
	}
	return files, nil
}

// isTable reports whether a file never changes. The others are small, and each database has its own: Pebble
// makes an empty log when it is opened, even if it will write none.
func isTable(name string) bool { return strings.HasSuffix(name, ".sst") }

// rejectFile says why no checkpoint has a file of this name, or returns nil.
func rejectFile(name string) error {
	known := isTable(name) || strings.HasSuffix(name, ".log")
	for _, prefix := range []string{"MANIFEST-", "OPTIONS-", "marker."} {
		known = known || strings.HasPrefix(name, prefix)
	}
	if known && !strings.Contains(name, "/") {
		return nil
	}
	return fmt.Errorf("it has a file %.80q, want tables (*.sst), *.log, MANIFEST-*, OPTIONS-* and marker.*; did another version of this program write it?", name)
}

// The stream of a snapshot names its format and the last command. Everything else is in the files.
const (
	streamFormat = "kvpebble1"
	streamBytes  = len(streamFormat) + 8
)

// WriteTo implements millrace.Snapshot.
func (c *checkpoint) WriteTo(_ context.Context, w io.Writer) error {
	c.store.disk.Lock()
	c.make()
	c.store.disk.Unlock()
	if c.err != nil {
		return fmt.Errorf("make a checkpoint in %s: %w", c.dir, c.err)
	}
	_, err := w.Write(binary.BigEndian.AppendUint64([]byte(streamFormat), c.applied))
	return err
}

// Files implements millrace.FileSnapshot: the host calls it after WriteTo.
func (c *checkpoint) Files() []millrace.SnapshotFile { return c.files }

// Close implements millrace.Snapshot.
func (c *checkpoint) Close() (err error) {
	c.store.disk.Lock()
	defer c.store.disk.Unlock()
	if !c.made {
		c.made = true
		err = c.store.release()
	}
	return errors.Join(err, c.store.fs.RemoveAll(c.dir))
}
