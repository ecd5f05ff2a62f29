package objects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/snapshot"
)

// The objects of a group are in its snapshots: the table as a stream of the host, and the sets that may be
// named as parts, by link. So a member that installs a snapshot has them, and a snapshot is taken where they
// are all here.

// maxForm bounds the form of a table that is read, for each set.
const maxForm = 256 + object.MaxHolders*26

// IsWhole reports whether this member has all sets that a snapshot must have.
func (k *Keeper) IsWhole() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.lacking {
		if s.Held > 0 {
			return false
		}
	}
	return true
}

// Capture returns the form of the table as it is, and what links the sets that may be named into a snapshot.
// It is called where the machine is captured.
func (k *Keeper) Capture() (form []byte, link func(*snapshot.Writer) error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var held []object.ID
	for _, s := range k.table.All() {
		if s.Held > 0 {
			held = append(held, s.ID)
		}
	}
	slices.SortFunc(held, func(a, b object.ID) int { return slices.Compare(a[:], b[:]) })
	return k.table.AppendTo(nil), func(w *snapshot.Writer) error { return k.link(held, w) }
}

// link writes sets into a snapshot.
func (k *Keeper) link(held []object.ID, w *snapshot.Writer) error {
	for _, id := range held {
		if err := k.files.LinkInto(id, w); err != nil {
			k.Damaged(id) // it is fetched, and the next try has it
			return err
		}
	}
	return nil
}

// Sources returns the objects on this disk that a snapshot has, too.
func (k *Keeper) Sources(m *snapshot.Manifest) (all []snapshot.Source) {
	last := ""
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Kind != snapshot.KindObject || p.Name == last {
			continue
		}
		last = p.Name
		if id, err := object.ParseID(p.Name); err == nil {
			if s, here := k.files.Source(id); here {
				all = append(all, s)
			}
		}
	}
	return all
}

// MaxForm bounds the form of a table.
func (k *Keeper) MaxForm() int64 {
	return min(int64(k.Options.WithDefaults().MaxSets)*maxForm, 1<<30) + 64
}

// Read reads the table of a snapshot, and takes its sets over: afterwards their files are on this disk.
// Nothing else of the group changes before restore, which is called where the machine is restored.
func (k *Keeper) Read(form []byte, store *snapshot.Store, of snapshot.ID) (restore func(), err error) {
	table, err := object.Decode(form, k.Options)
	if err != nil {
		return nil, err
	}
	for _, s := range table.All() {
		if s.Held == 0 {
			continue
		}
		if err := k.adopt(&s, store, of); err != nil {
			return nil, fmt.Errorf("object %v: %w", s.ID, err)
		}
	}
	return func() { k.restored(table, of.Index) }, nil
}

// adopt makes a set of a snapshot one that is here. One that is being fetched or removed just now stays
// lacking: the fetch goes on.
func (k *Keeper) adopt(s *object.Set, store *snapshot.Store, id snapshot.ID) error {
	k.mu.Lock()
	k.condemn = slices.DeleteFunc(k.condemn, func(other object.ID) bool { return other == s.ID })
	k.mu.Unlock()
	_, here := k.files.Info(s.ID)
	err := k.files.TakeFrom(s.ID, s.Bytes, s.Hash, store, id)
	switch {
	case errors.Is(err, files.ErrBusy):
		return nil
	case err == nil && !here && !store.Verified(id):
		if err = k.files.Verify(context.Background(), s.ID); isDamage(err) {
			k.Logger.Warn("an object of a snapshot is damaged, and is fetched", "group", k.Group, "host", k.Self, "object", s.ID.String(), "err", err)
			return nil
		}
	}
	return err
}

// restored makes the table that of a snapshot through an index.
func (k *Keeper) restored(table *object.Table, index uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	was := k.table
	k.table = table
	clear(k.unheld)
	for _, id := range slices.SortedFunc(maps.Keys(k.lacking), func(a, b object.ID) int { return slices.Compare(a[:], b[:]) }) {
		if _, is := table.Get(id); !is {
			k.stops = append(k.stops, id)
		}
	}
	clear(k.lacking)
	for _, s := range table.All() {
		k.record(s)
	}
	for _, s := range was.All() {
		if _, is := table.Get(s.ID); !is { // it went in between
			k.ended = append(k.ended, object.Gone{ID: s.ID, Index: index})
		}
	}
	k.setGoes()
	for _, id := range slices.SortedFunc(maps.Keys(k.uploads), func(a, b object.ID) int { return slices.Compare(a[:], b[:]) }) {
		u := k.uploads[id]
		s, is := table.Get(id)
		_, opened := was.Get(id)
		switch {
		case is && s.Held > 0:
			delete(k.uploads, id)
			u.Finish(s, nil)
		case !is && opened:
			delete(k.uploads, id)
			u.Finish(object.Set{}, fmt.Errorf("%w: %v expired before a quorum held it", object.ErrUnknown, id))
		}
	}
	k.wiring.Want()
	k.work.Store(true) // the turn that follows an install, or the opening, looks
}
