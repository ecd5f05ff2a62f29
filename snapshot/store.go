package snapshot

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/millrace/millrace/vfs"
)

// Store has the snapshots of one group. It is safe for concurrent use. One process at a time may have a
// directory open; the lock of the host's directory ensures that.
type Store struct {
	fs   vfs.FS
	dir  string
	pace int64 // paced.every: paceBytes, except in tests

	// mu guards what follows, and is never held across a call of the disk.
	mu        sync.Mutex
	published map[ID]*entry
	damaged   map[ID]*DamageError
	// unfinished has the offers of receives that were begun and not published.
	unfinished map[ID]*Manifest
	// leftover are directories that could not be removed.
	leftover map[ID]bool
	// stuck are leftovers that this process must not touch, with the reason.
	stuck map[ID]*StuckError
	// busy are directories in which a Writer, a Receiver or a removal works.
	busy      map[ID]bool
	writing   bool
	receiving bool
}

// entry is a published snapshot.
type entry struct {
	manifest *Manifest
	verified bool
	pins     int // readers
}

const (
	manifestFile = "MANIFEST"
	offerFile    = "OFFER"
	draftSuffix  = ".tmp"
)

func partFile(i int) string { return fmt.Sprintf("part-%08d", i) }

// OpenStore opens the store in dir, and makes it if there is none. It makes durable what a process may have
// left un-synced, and removes what a crash left unfinished: takes, and receives that a newer published
// snapshot has overtaken. A receive that is still of use stays (Unfinished).
//
// A directory whose MANIFEST cannot be read, or does not fit the files, is not used and not removed
// (Damaged). Contents are not read: Verify does that.
func OpenStore(fsys vfs.FS, dir string) (*Store, error) {
	dir, err := vfs.Absolute(fsys, dir)
	if err == nil {
		err = fsys.MkdirAll(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: make %s: %w", dir, err)
	}
	s := newStore(fsys, dir)
	if err := s.loadAll(s.syncNames); err != nil {
		return nil, err
	}
	latest, _ := s.Latest()
	for _, id := range sortedIDs(s.unfinished) {
		if id.Index <= latest.Index {
			delete(s.unfinished, id)
			s.leftover[id] = true
		}
	}
	for _, id := range sortedIDs(s.leftover) {
		if s.removeDir(id) == nil { // otherwise Prune tries again: nothing depends on it
			delete(s.leftover, id)
		}
	}
	return s, nil
}

// ReadStore opens the store in dir to read it: it changes nothing on the disk, and every method that would is
// an error. So it works on a read-only volume. The caller ensures that no process writes to the store.
func ReadStore(fsys vfs.FS, dir string) (*Store, error) {
	s := newStore(vfs.ReadOnly(fsys), dir)
	return s, s.loadAll(func(string) error { return nil })
}

func newStore(fsys vfs.FS, dir string) *Store {
	return &Store{
		fs: fsys, dir: dir, pace: paceBytes,
		published: map[ID]*entry{}, damaged: map[ID]*DamageError{}, unfinished: map[ID]*Manifest{},
		leftover: map[ID]bool{}, stuck: map[ID]*StuckError{}, busy: map[ID]bool{},
	}
}

// loadAll sorts in what the directory has. published is called with the directory of each published snapshot.
func (s *Store) loadAll(published func(dir string) error) error {
	names, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return fmt.Errorf("snapshot: read %s: %w", s.dir, err)
	}
	for _, name := range names {
		if id, err := ParseID(name); err == nil {
			if err := s.load(id, published); err != nil {
				return err
			}
		}
	}
	return nil
}

// syncNames makes durable what the process that renamed MANIFEST may have died before syncing.
func (s *Store) syncNames(dir string) error {
	if err := vfs.SyncDir(s.fs, dir); err != nil {
		return fmt.Errorf("snapshot: sync %s: %w", dir, err)
	}
	return nil
}

// load sorts one directory in.
func (s *Store) load(id ID, published func(dir string) error) error {
	dir := s.path(id)
	names, err := s.fs.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("snapshot: read %s: %w", dir, err)
	}
	switch {
	case slices.Contains(names, manifestFile):
		if err := published(dir); err != nil {
			return err
		}
		m, err := readDirectory(s.fs, dir, id)
		if damage := (*DamageError)(nil); errors.As(err, &damage) {
			s.damaged[id] = damage
			return nil
		}
		if err != nil {
			return err
		}
		s.published[id] = &entry{manifest: m}
	case slices.Contains(names, offerFile):
		m, err := readManifest(s.fs, filepath.Join(dir, offerFile), id)
		if damage := (*DamageError)(nil); errors.As(err, &damage) {
			s.leftover[id] = true // nothing depends on an offer
			return nil
		}
		if err != nil {
			return err
		}
		s.unfinished[id] = m
	default:
		s.leftover[id] = true
	}
	return nil
}

// makeDir makes the directory of a snapshot, and none above it: if the store's directory is not there any
// more, a later start would not find the snapshot.
func (s *Store) makeDir(id ID) error {
	if _, err := s.fs.ReadDir(s.dir); err != nil {
		return fmt.Errorf("the directory of the snapshots cannot be read: %w", err)
	}
	return s.fs.MkdirAll(s.path(id))
}

func (s *Store) path(id ID) string { return filepath.Join(s.dir, id.String()) }

func sortedIDs[V any](m map[ID]V) []ID { return slices.SortedFunc(maps.Keys(m), ID.Compare) }

// Latest returns the newest published snapshot that is not known to be damaged. Verified says whether its
// content was read back. It does not touch the disk.
func (s *Store) Latest() (ID, bool) {
	ids := s.List()
	if len(ids) == 0 {
		return ID{}, false
	}
	return ids[len(ids)-1], true
}

// List returns the published snapshots that are not known to be damaged, the oldest first. It does not touch
// the disk.
func (s *Store) List() []ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sortedIDs(s.published)
}

// Damaged returns what is wrong with the snapshots that are damaged, the oldest first. It does not touch the
// disk.
func (s *Store) Damaged() []*DamageError {
	s.mu.Lock()
	defer s.mu.Unlock()
	var damaged []*DamageError
	for _, id := range sortedIDs(s.damaged) {
		damaged = append(damaged, s.damaged[id])
	}
	return damaged
}

// Stuck returns the directories that this process must not touch any more, the oldest first. It does not
// touch the disk.
func (s *Store) Stuck() []*StuckError {
	s.mu.Lock()
	defer s.mu.Unlock()
	var stuck []*StuckError
	for _, id := range sortedIDs(s.stuck) {
		stuck = append(stuck, s.stuck[id])
	}
	return stuck
}

// Unfinished returns the offer of the newest receive that was begun, is not under way now, and can be resumed
// with Receive. It does not touch the disk. The caller must not change what the manifest refers to.
func (s *Store) Unfinished() (Manifest, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := sortedIDs(s.unfinished)
	for _, id := range slices.Backward(ids) {
		if !s.busy[id] {
			return *s.unfinished[id], true
		}
	}
	return Manifest{}, false
}

// Manifest returns the manifest of a published snapshot, or ErrNotFound. It does not touch the disk. The
// caller must not change what the manifest refers to.
func (s *Store) Manifest(id ID) (Manifest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.published[id]
	if e == nil {
		return Manifest{}, s.missing(id)
	}
	return *e.manifest, nil
}

// missing is the error about a snapshot that is not published. The caller holds mu.
func (s *Store) missing(id ID) error {
	if damage := s.damaged[id]; damage != nil {
		return damage
	}
	return fmt.Errorf("snapshot %v in %s: %w", id, s.dir, ErrNotFound)
}

// Verified reports whether all content of a published snapshot was read back, and was right, since OpenStore.
// It does not touch the disk.
func (s *Store) Verified(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.published[id]
	return e != nil && e.verified
}

// Pin keeps a published snapshot from being removed until release is called. It does not touch the disk.
func (s *Store) Pin(id ID) (release func(), err error) {
	_, release, err = s.pin(id)
	return release, err
}

func (s *Store) pin(id ID) (*Manifest, func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.published[id]
	if e == nil {
		return nil, nil, s.missing(id)
	}
	e.pins++
	return e.manifest, sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		e.pins--
	}), nil
}

// Verify reads the MANIFEST and every block of a published snapshot, and compares them with what was
// published. It does not read an object or a file of the machine again if it is the same file in another
// verified snapshot. What many snapshots have may be much more than everything else. Nothing may rely on a
// snapshot, and no log be compacted behind it, before Verify returned nil. If the content is
// wrong, it returns a *DamageError, and the snapshot leaves List. Reads may come from the memory of the
// kernel, as everywhere: Verify finds what was written wrongly, and after a start of the machine what the
// disk lost.
func (s *Store) Verify(ctx context.Context, id ID) error {
	m, release, err := s.pin(id)
	if err != nil {
		return err
	}
	defer release()
	err = s.verify(ctx, id, m)
	s.delistDamaged(err)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.published[id]
	if e == nil {
		return s.missing(id)
	}
	e.verified = true
	return nil
}

func (s *Store) verify(ctx context.Context, id ID, m *Manifest) error {
	dir := s.path(id)
	read, err := readManifest(s.fs, filepath.Join(dir, manifestFile), id)
	if err != nil {
		return err
	}
	if read.Hash() != m.Hash() {
		return &DamageError{ID: id, File: filepath.Join(dir, manifestFile), Block: -1, What: "it is another manifest than the one that was published"}
	}
	known := s.verifiedLinks(id)
	for i := range m.Parts {
		file := filepath.Join(dir, partFile(i))
		if before, ok := known[m.Parts[i].contentSum()]; ok && m.Parts[i].linked() {
			if same, err := vfs.SameFile(s.fs, before, file); same && err == nil {
				continue
			}
		}
		if err := verifyFile(ctx, s.fs, file, m, i); err != nil {
			return err
		}
	}
	return nil
}

// linked reports whether a part may be a link to a file that never changes.
func (p *Part) linked() bool { return p.Kind == KindObject || p.Kind == KindFile }

// verifiedLinks returns the files of such parts in the verified snapshots except one.
func (s *Store) verifiedLinks(except ID) map[contentSum]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := map[contentSum]string{}
	for _, id := range sortedIDs(s.published) {
		e := s.published[id]
		if id == except || !e.verified {
			continue
		}
		for i := range e.manifest.Parts {
			if p := &e.manifest.Parts[i]; p.linked() {
				files[p.contentSum()] = filepath.Join(s.path(id), partFile(i))
			}
		}
	}
	return files
}

// delistDamaged takes a snapshot out of List if err says that it is damaged.
func (s *Store) delistDamaged(err error) {
	var damage *DamageError
	if !errors.As(err, &damage) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.published[damage.ID] != nil {
		delete(s.published, damage.ID)
		s.damaged[damage.ID] = damage
	}
}

// addPublished puts a snapshot into List, and ends what was under way in its directory.
func (s *Store) addPublished(m *Manifest, verified bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, m.ID())
	delete(s.unfinished, m.ID())
	s.published[m.ID()] = &entry{manifest: m, verified: verified}
}
