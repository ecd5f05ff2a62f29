// Package files keeps the contents of a group's large objects on the disk (package object says what a group
// agrees on about them).
//
// An object is a directory as a snapshot has it (package snapshot): parts of 64 MiB, which never change,
// and a MANIFEST with the checksum of each block. A rename publishes the manifest when everything else is
// durable:
//
//	<dir>/<id>/0000000000000001-0000000000000001/part-00000000
//	                                             MANIFEST
//
// So an object is there whole or not at all. It is received in blocks that are checked before they are
// written, and a receive continues after a crash. Each object has a snapshot.Store with one snapshot in it.
// Its parts are linked into the snapshots of the group (LinkInto), and taken from them (TakeFrom).
//
// The package has no goroutine, no clock and no randomness. Methods that answer from memory say so.
package files

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

// Store has the contents of the objects of one group. It is safe for concurrent use. One process at a time
// may have a directory open; the lock of the host's directory ensures that.
type Store struct {
	fs  vfs.FS
	dir string

	// Damage, if it is set before the store is used, is called when a read finds the content of an object
	// damaged (File.ReadAt). The object is not here any more. It must not block.
	Damage func(object.ID)

	// mu guards what follows, and is never held across a call of the disk.
	mu   sync.Mutex
	all  map[object.ID]*snapshot.Store
	busy map[object.ID]bool // made or removed
	// known has what Info has computed of the manifests.
	known map[object.ID]known
}

// the is the id of the one snapshot that is an object.
var the = snapshot.ID{Index: 1, Term: 1}

// The errors of a store, to be matched with errors.Is.
var (
	// ErrNotHere: this store does not have the object whole.
	ErrNotHere = errors.New("the object is not on this disk")
	// ErrBusy: the object is written, received or removed. Try again when that has ended.
	ErrBusy = errors.New("the object is being written, received or removed")
)

// Info is what a store knows of an object that it has whole.
type Info struct {
	ID    object.ID
	Bytes int64
	// Hash is the SHA-256 of the manifest: objects with equal hashes have equal contents.
	Hash [32]byte
	// Manifest is the length of the encoded manifest, in bytes. A member that fetches the object must know
	// it.
	Manifest int64
}

// Open opens the store in dir, and makes it if there is none. What a crash left of objects that were written
// is removed; what was received stays, and the receive can be continued. It reads the manifests, and Verify
// the contents.
func Open(fsys vfs.FS, dir string) (*Store, error) {
	dir, err := vfs.Absolute(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("objects: %s: %w", dir, err)
	}
	s := &Store{fs: fsys, dir: dir, all: map[object.ID]*snapshot.Store{}, busy: map[object.ID]bool{}, known: map[object.ID]known{}}
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, fmt.Errorf("objects: make %s: %w", dir, err)
	}
	names, err := fsys.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("objects: read %s: %w", dir, err)
	}
	for _, name := range names {
		id, err := object.ParseID(name)
		if err != nil {
			continue // not ours
		}
		of, err := snapshot.OpenStore(fsys, s.path(id))
		if err != nil {
			return nil, fmt.Errorf("objects: %v: %w", id, err)
		}
		if _, receives := of.Unfinished(); len(of.List()) == 0 && len(of.Damaged()) == 0 && !receives {
			if s.removeDir(id) == nil {
				continue // otherwise Remove tries again: nothing depends on it
			}
		}
		s.all[id] = of
	}
	return s, nil
}

func (s *Store) path(id object.ID) string { return filepath.Join(s.dir, id.String()) }

// removeDir removes the empty directory of an object, durably.
func (s *Store) removeDir(id object.ID) error {
	dir := s.path(id)
	if err := s.removeEmpty(dir); err != nil {
		return fmt.Errorf("objects: remove %s: %w", dir, err)
	}
	return nil
}

// removeEmpty opens the directory above before it removes anything: if there is no descriptor, all is as it
// was. A directory that is gone was removed by an earlier call, whose sync may have failed.
func (s *Store) removeEmpty(dir string) (err error) {
	names, err := s.fs.ReadDir(dir)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case len(names) > 0:
		return fmt.Errorf("it has %s", strings.Join(names, ", "))
	}
	above, err := s.fs.OpenDir(s.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, above.Close()) }()
	if err := s.fs.RemoveDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return above.Sync()
}

// get returns the store of an object, or nil.
func (s *Store) get(id object.ID) *snapshot.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all[id]
}

// All returns the ids of all objects of which something is here, whole or not, by id. It does not touch the
// disk.
func (s *Store) All() []object.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.all), func(a, b object.ID) int { return slices.Compare(a[:], b[:]) })
}

// List returns the objects that are here whole and are not known to be damaged, by id. It does not touch the
// disk.
func (s *Store) List() (all []Info) {
	for _, id := range s.All() {
		if info, ok := s.Info(id); ok {
			all = append(all, info)
		}
	}
	return all
}

// Info returns what is known of an object that is here whole. It does not touch the disk.
func (s *Store) Info(id object.ID) (info Info, ok bool) {
	of := s.get(id)
	if of == nil {
		return info, false
	}
	m, err := of.Manifest(the)
	if err != nil || len(m.Parts) == 0 { // an object has at least one part
		return info, false
	}
	s.mu.Lock()
	k := s.known[id]
	s.mu.Unlock()
	if k.of != nil && k.of == &m.Parts[0] {
		return k.info, true
	}
	info = Info{ID: id, Bytes: m.Bytes(), Hash: m.Hash(), Manifest: m.EncodedBytes()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all[id] == of {
		s.known[id] = known{&m.Parts[0], info}
	}
	return info, true
}

// known is what was computed of a manifest, whose first part it has.
type known struct {
	of   *snapshot.Part
	info Info
}

// FindHash returns an object that is here whole and whose manifest has this hash. It does not touch the disk.
func (s *Store) FindHash(hash [32]byte) (id object.ID, ok bool) {
	for _, id := range s.All() {
		if info, here := s.Info(id); here && info.Hash == hash {
			return id, true
		}
	}
	return id, false
}

// Damaged returns what is wrong with the objects that are damaged. It does not touch the disk.
func (s *Store) Damaged() (all []*snapshot.DamageError) {
	s.mu.Lock()
	stores := make([]*snapshot.Store, 0, len(s.all))
	for _, of := range s.all {
		stores = append(stores, of)
	}
	s.mu.Unlock()
	for _, of := range stores {
		all = append(all, of.Damaged()...)
	}
	slices.SortFunc(all, func(a, b *snapshot.DamageError) int { return strings.Compare(a.File, b.File) })
	return all
}

// Verify reads every block of an object, and compares it with the manifest. If one is wrong, the object is
// not here any more: it is fetched again (Receive keeps nothing of it). The error is a *snapshot.DamageError
// then.
func (s *Store) Verify(ctx context.Context, id object.ID) error {
	of := s.get(id)
	if of == nil {
		return fmt.Errorf("objects: verify %v: %w", id, ErrNotHere)
	}
	if err := of.Verify(ctx, the); errors.Is(err, snapshot.ErrNotFound) {
		return fmt.Errorf("objects: verify %v: %w", id, ErrNotHere)
	} else {
		return err
	}
}

// Remove removes an object, or what was received of one. It returns ErrBusy if the object is being written,
// received or read. Of an object that is not here it changes nothing.
func (s *Store) Remove(id object.ID) error {
	s.mu.Lock()
	of := s.all[id]
	switch {
	case s.busy[id]:
		s.mu.Unlock()
		return fmt.Errorf("objects: remove %v: %w", id, ErrBusy)
	case of == nil:
		s.mu.Unlock()
		return nil
	}
	s.busy[id] = true
	s.mu.Unlock()
	err := of.Remove(the)
	switch {
	case errors.Is(err, snapshot.ErrInUse):
		err = ErrBusy
	case err == nil || errors.Is(err, snapshot.ErrNotFound):
		err = s.removeDir(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, id)
	if err != nil {
		return fmt.Errorf("objects: remove %v: %w", id, err)
	}
	delete(s.all, id)
	delete(s.known, id)
	return nil
}
