package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace"
)

// command makes a name refer to a file, or to none. A command with a file names its object, too
// (millrace.WithObjects), so members apply it when they have the bytes.
type command struct {
	Name string
	File *file `json:",omitempty"` // nil: the name is deleted
}

// file is what a name refers to.
type file struct {
	Object millrace.ObjectID
	Bytes  int64
	Hash   []byte // equal for equal contents
	// Modified is by the clock of the host that took the file. Members must not ask their own clocks.
	Modified time.Time
}

// etag returns the version of a file for HTTP.
func (f file) etag() string { return `"` + hex.EncodeToString(f.Hash) + `"` }

// keeper is what a store needs of millrace.Objects, so that tests need no host.
type keeper interface {
	Keep(millrace.ObjectID) error
	Release(millrace.ObjectID) error
}

// store is the state machine: a map from names to files, in memory. The bytes are on the disk, as objects.
// Invariant: exactly the objects that names refer to are kept.
type store struct {
	objects keeper

	mu    sync.RWMutex // Apply writes; requests read
	names map[string]file
}

func newStore() *store { return &store{names: map[string]file{}} }

// machine says what millrace must know of a store.
func (s *store) machine(o millrace.ObjectOptions) millrace.Machine[command, bool] {
	return millrace.InMemory(s, millrace.JSON[command]()).Objects(o).Digest(s.digest).Version("1")
}

// UseObjects implements millrace.ObjectUser.
func (s *store) UseObjects(o *millrace.Objects) { s.objects = o }

// Apply implements millrace.StateMachine. The result of a command says whether its name existed before.
func (s *store) Apply(batch []millrace.Command[command], existed []bool) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range batch {
		if existed[i], err = s.apply(batch[i].Value); err != nil {
			return err
		}
	}
	return nil
}

// apply keeps the object of the new file before it releases that of the old one. Neither can fail on a sound
// member: a command whose object a quorum does not hold never comes here, and what a name refers to is kept.
func (s *store) apply(c command) (existed bool, err error) {
	old, existed := s.names[c.Name]
	if c.File != nil {
		err = s.objects.Keep(c.File.Object)
		s.names[c.Name] = *c.File
	} else {
		delete(s.names, c.Name)
	}
	if existed {
		err = errors.Join(err, s.objects.Release(old.Object))
	}
	return existed, err
}

// get returns the file of a name.
func (s *store) get(name string) (f file, found bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	f, found = s.names[name]
	return f, found
}

// all returns a copy of the state.
func (s *store) all() map[string]file {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.names)
}

// digest depends on the whole state, so that members notice if theirs differ. Apply does not run meanwhile.
func (s *store) digest() uint64 {
	h := fnv.New64a()
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		f := s.names[name]
		fmt.Fprintf(h, "%q %v %d %x %v\n", name, f.Object, f.Bytes, f.Hash, f.Modified)
	}
	return h.Sum64()
}

// Snapshot implements millrace.StateMachine. The objects are in the group's snapshots without our help, and
// so is which of them are kept.
func (s *store) Snapshot() (millrace.Snapshot, error) { return snapshot(s.all()), nil }

type snapshot map[string]file

// WriteTo implements millrace.Snapshot: JSON, in the order of the names.
func (s snapshot) WriteTo(_ context.Context, w io.Writer) error { return json.NewEncoder(w).Encode(s) }

// Close implements millrace.Snapshot.
func (snapshot) Close() error { return nil }

// Restore implements millrace.StateMachine.
func (s *store) Restore(_ context.Context, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	names := map[string]file{}
	if err := json.Unmarshal(b, &names); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = names
	return nil
}
