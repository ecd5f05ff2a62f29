package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
)

// What leaves a store, and in which order its files go, so that a crash leaves no snapshot in part.

// Prune removes the published snapshots older than the newest verified snapshot, except snapshots in keep
// or in use. It never removes the newest verified snapshot, nor a newer one. It removes damaged snapshots
// and unfinished receives unless they are newer. Without a verified snapshot it removes nothing that was
// ever published. What it cannot remove now it tries again next time.
func (s *Store) Prune(keep ...ID) error {
	s.mu.Lock()
	victims := maps.Clone(s.leftover)
	newest := s.newestVerified()
	for id, e := range s.published {
		if id.Compare(newest) < 0 && e.pins == 0 && !slices.Contains(keep, id) {
			victims[id] = true
		}
	}
	for id := range s.damaged {
		if id.Compare(newest) < 0 && !slices.Contains(keep, id) {
			victims[id] = true
		}
	}
	for id := range s.unfinished {
		if id.Index <= newest.Index {
			victims[id] = true
		}
	}
	maps.DeleteFunc(victims, func(id ID, _ bool) bool { return s.busy[id] || s.stuck[id] != nil })
	ids := sortedIDs(victims)
	for _, id := range ids {
		s.condemn(id)
	}
	s.mu.Unlock()
	var errs []error
	for _, id := range ids {
		errs = append(errs, s.execute(id))
	}
	return errors.Join(errs...)
}

// newestVerified returns the zero ID if no snapshot is verified. The caller holds mu.
func (s *Store) newestVerified() ID {
	var newest ID
	for id, e := range s.published {
		if e.verified && id.Compare(newest) > 0 {
			newest = id
		}
	}
	return newest
}

// Remove removes a snapshot, published, damaged or unfinished, whatever depends on it. It is for a snapshot
// that proves wrong after it was published, or is not wanted any more. It returns ErrInUse if the snapshot
// is being written, received or read.
func (s *Store) Remove(id ID) error {
	s.mu.Lock()
	switch e := s.published[id]; {
	case s.busy[id] || e != nil && e.pins > 0:
		s.mu.Unlock()
		return fmt.Errorf("snapshot: remove %v in %s: %w", id, s.dir, ErrInUse)
	case s.stuck[id] != nil:
		err := s.stuck[id]
		s.mu.Unlock()
		return err
	case e == nil && s.damaged[id] == nil && s.unfinished[id] == nil && !s.leftover[id]:
		err := s.missing(id)
		s.mu.Unlock()
		return err
	}
	s.condemn(id)
	s.mu.Unlock()
	return s.execute(id)
}

// condemn makes a directory a leftover that is being removed. The caller holds mu.
func (s *Store) condemn(id ID) {
	delete(s.published, id)
	delete(s.damaged, id)
	delete(s.unfinished, id)
	s.leftover[id], s.busy[id] = true, true
}

// execute removes the directory of a condemned snapshot.
func (s *Store) execute(id ID) error {
	err := s.removeDir(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, id)
	if err == nil {
		delete(s.leftover, id)
	}
	return err
}

// removeDir removes a directory with what is in it. The MANIFEST goes first, durably, so that no crash leaves
// one without its parts. The sync is needed even if there is no MANIFEST: a process may have died between the
// removal and the sync. If this sync fails, another one proves nothing (vfs, rule 5), so this process leaves
// the directory alone from then on. So both directories are opened before anything is removed: a lack of
// descriptors is no failed sync.
func (s *Store) removeDir(id ID) (err error) {
	dir := s.path(id)
	defer func() {
		if err != nil {
			err = fmt.Errorf("snapshot: remove %s: %w", dir, err)
		}
	}()
	names, err := s.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	above, err := s.fs.OpenDir(s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, above.Close()) }()
	if err := s.emptyDir(id, names); err != nil {
		return err
	}
	if err := s.fs.RemoveDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // vfs.Memory lists nothing instead
		return err
	}
	return above.Sync()
}

// emptyDir removes what is in a directory.
func (s *Store) emptyDir(id ID, names []string) (err error) {
	dir := s.path(id)
	d, err := s.fs.OpenDir(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if slices.Contains(names, manifestFile) {
		if err := s.fs.Remove(filepath.Join(dir, manifestFile)); err != nil {
			return err
		}
	}
	if err := d.Sync(); err != nil {
		stuck := &StuckError{ID: id, Dir: dir, Err: err}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stuck[id] = stuck
		return stuck
	}
	for _, name := range names {
		if err := s.fs.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
