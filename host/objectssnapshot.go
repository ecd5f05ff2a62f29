package host

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/snapshot"
)

// The objects of a group are in its snapshots: the table as a stream of the host, and the sets that may be
// named as parts, by link. So a member that installs a snapshot has them, and a snapshot is taken where they
// are all here.

// maxObjectForm bounds the form of a table that is read, for each set.
const maxObjectForm = 256 + object.MaxHolders*26

// isWhole reports whether this member has all sets that a snapshot must have.
func (o *groupObjects) IsWhole() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, s := range o.lacking {
		if s.Held > 0 {
			return false
		}
	}
	return true
}

// Capture returns the table as it is, with the sets that may be named.
func (o *groupObjects) Capture() snapshots.CapturedSection {
	o.mu.Lock()
	defer o.mu.Unlock()
	var held []object.ID
	for _, s := range o.table.All() {
		if s.Held > 0 {
			held = append(held, s.ID)
		}
	}
	slices.SortFunc(held, func(a, b object.ID) int { return slices.Compare(a[:], b[:]) })
	return snapshots.CapturedSection{
		Name: snapshots.ObjectsStream, Form: o.table.AppendTo(nil),
		Link: func(w *snapshot.Writer) error { return o.link(held, w) },
	}
}

// link writes sets into a snapshot.
func (o *groupObjects) link(held []object.ID, w *snapshot.Writer) error {
	for _, id := range held {
		if err := o.files.LinkInto(id, w); err != nil {
			o.damaged(id) // it is fetched, and the next try has it
			return err
		}
	}
	return nil
}

// Sources returns the objects on this disk that a snapshot has, too.
func (o *groupObjects) Sources(m *snapshot.Manifest) (all []snapshot.Source) {
	last := ""
	for i := range m.Parts {
		p := &m.Parts[i]
		if p.Kind != snapshot.KindObject || p.Name == last {
			continue
		}
		last = p.Name
		if id, err := object.ParseID(p.Name); err == nil {
			if s, here := o.files.Source(id); here {
				all = append(all, s)
			}
		}
	}
	return all
}

// Read reads the table of a snapshot, and takes its sets over: afterwards their files are on this disk.
func (o *groupObjects) Read(p *snapshots.Published, r *snapshot.Reader) (restore func(), err error) {
	sets := int64(o.options.WithDefaults().MaxSets)
	form, err := snapshots.ReadForm(p, r, snapshots.ObjectsStream, min(sets*maxObjectForm, 1<<30)+64)
	if err != nil {
		return nil, fmt.Errorf("its objects: %w (CommandOptions.Objects)", err)
	}
	table, err := object.Decode(form, o.options.Options)
	if err != nil {
		return nil, err
	}
	store, err := o.group.snapshots.Store()
	if err != nil {
		return nil, err
	}
	for _, s := range table.All() {
		if s.Held == 0 {
			continue
		}
		if err := o.takeOver(&s, store, p.ID); err != nil {
			return nil, fmt.Errorf("object %v: %w", s.ID, err)
		}
	}
	return func() { o.restored(table, p.ID.Index) }, nil
}

// takeOver makes a set of a snapshot one that is here. One that is being fetched or removed just now stays
// lacking: the fetch goes on.
func (o *groupObjects) takeOver(s *object.Set, store *snapshot.Store, id snapshot.ID) error {
	o.mu.Lock()
	o.condemn = slices.DeleteFunc(o.condemn, func(other object.ID) bool { return other == s.ID })
	o.mu.Unlock()
	_, here := o.files.Info(s.ID)
	err := o.files.TakeFrom(s.ID, s.Bytes, s.Hash, store, id)
	switch {
	case errors.Is(err, files.ErrBusy):
		return nil
	case err == nil && !here && !store.Verified(id):
		if err = o.files.Verify(context.Background(), s.ID); snapshots.IsDamage(err) {
			o.group.host.env.logger.Warn("an object of a snapshot is damaged, and is fetched", "group", o.group.id, "host", o.group.self, "object", s.ID.String(), "err", err)
			return nil
		}
	}
	return err
}

// restored makes the table that of a snapshot through an index.
func (o *groupObjects) restored(table *object.Table, index uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.table
	o.table = table
	clear(o.unheld)
	for _, id := range slices.SortedFunc(maps.Keys(o.lacking), func(a, b object.ID) int { return slices.Compare(a[:], b[:]) }) {
		if _, is := table.Get(id); !is {
			o.stops = append(o.stops, id)
		}
	}
	clear(o.lacking)
	for _, s := range table.All() {
		o.note(s)
	}
	for _, s := range was.All() {
		if _, is := table.Get(s.ID); !is { // it went in between
			o.ended = append(o.ended, object.Gone{ID: s.ID, Index: index})
		}
	}
	o.setGoes()
	for _, id := range slices.SortedFunc(maps.Keys(o.uploads), func(a, b object.ID) int { return slices.Compare(a[:], b[:]) }) {
		u := o.uploads[id]
		s, is := table.Get(id)
		_, opened := was.Get(id)
		switch {
		case is && s.Held > 0:
			delete(o.uploads, id)
			u.finish(s, nil)
		case !is && opened:
			delete(o.uploads, id)
			u.finish(object.Set{}, fmt.Errorf("%w: %v expired before a quorum held it", object.ErrUnknown, id))
		}
	}
	o.group.want(dutyObjects)
	o.work.Store(true) // the turn that follows an install, or the opening, looks
}
