package snapshots

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/millrace/millrace/snapshot"
)

// Store returns the directory of the group's snapshots. It reads the disk the first time, so it must not be
// called in a turn.
func (s *Group) Store() (*snapshot.Store, error) {
	if store := s.opened.Load(); store != nil {
		return store, nil
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if store := s.opened.Load(); store != nil {
		return store, nil
	}
	store, err := snapshot.OpenStore(s.FS, s.Dir)
	if err != nil {
		return nil, fmt.Errorf("millrace: the snapshots of group %d in %s cannot be opened: %w", s.ID, s.Dir, err)
	}
	s.opened.Store(store)
	return store, nil
}

// List returns the snapshots of the group, the oldest first. If there is no directory it makes none.
func (s *Group) List() ([]snapshot.ID, error) {
	_, err := s.FS.ReadDir(s.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("millrace: read %s: %w", s.Dir, err)
	}
	store, err := s.Store()
	if err != nil {
		return nil, err
	}
	return store.List(), nil
}

// Damaged returns what was found to be damaged.
func (s *Group) Damaged() (errs []error) {
	if store := s.opened.Load(); store != nil {
		for _, d := range store.Damaged() {
			errs = append(errs, d)
		}
	}
	return errs
}

// Stuck returns the directories that this process must not touch any more, because a sync of them failed.
func (s *Group) Stuck() []*snapshot.StuckError {
	if store := s.opened.Load(); store != nil {
		return store.Stuck()
	}
	return nil
}

// Forget removes snapshots that are newer than the log when the group begins without them. They were
// received, and the group was closed before the log got a mark, so nothing was promised that rests on them.
// The leader offers them again. If they stayed, older snapshots would be pruned for them.
func (s *Group) Forget(ids []snapshot.ID) error {
	for _, id := range ids {
		store, err := s.Store()
		if err != nil {
			return err
		}
		if err := store.Remove(id); err != nil {
			return fmt.Errorf("millrace: remove snapshot %v of group %d, which was not installed: %w", id, s.ID, err)
		}
	}
	return nil
}

// create begins to write a snapshot. One of the same entry that was published before, and is not the latest,
// could not be read: it is written again.
func create(store *snapshot.Store, id snapshot.ID) (*snapshot.Writer, error) {
	w, err := store.Create(id)
	if !errors.Is(err, snapshot.ErrPublished) {
		return w, err
	}
	if err := store.Remove(id); err != nil {
		return nil, err
	}
	return store.Create(id)
}
