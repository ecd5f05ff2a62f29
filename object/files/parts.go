package files

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/snapshot"
)

// The contents of objects are parts of the group's snapshots: parts of snapshot.KindObject, whose name is the
// id of the object. They are the same files under two names, so a snapshot with objects costs no space, and
// writes and reads nothing of them. Removing one of the two leaves the other whole.

// Source returns where the parts of an object are, for snapshot.Store.Receive, if the object is here whole.
// It does not keep the object from being removed, and does not touch the disk.
func (s *Store) Source(id object.ID) (from snapshot.Source, ok bool) {
	of := s.get(id)
	if of == nil {
		return from, false
	}
	_, err := of.Manifest(the)
	return snapshot.Source{Store: of, ID: the, Kind: snapshot.KindMachine, Name: stream}, err == nil
}

// LinkInto adds the parts of an object to a snapshot (snapshot.Writer.LinkParts). It returns ErrNotHere, and
// the Writer is still good, if the object is not here whole. After any other error the snapshot must be
// aborted; a *snapshot.DamageError is about the object, which is not here any more.
func (s *Store) LinkInto(id object.ID, w *snapshot.Writer) error {
	from, ok := s.Source(id)
	if !ok {
		return fmt.Errorf("objects: link %v into a snapshot: %w", id, ErrNotHere)
	}
	err := w.LinkParts(snapshot.KindObject, id.String(), from)
	switch {
	case errors.Is(err, snapshot.ErrNotFound):
		return fmt.Errorf("objects: link %v into a snapshot: %w", id, ErrNotHere)
	case err != nil:
		return fmt.Errorf("objects: link %v into a snapshot: %w", id, err)
	}
	return nil
}

// TakeFrom makes an object from the parts that a published snapshot has of it, as LinkInto has added them,
// by link. The object is then here whole and durably, with its uploader's manifest: bytes and hash say
// which one. The content is not read; Verify does that. The snapshot is pinned meanwhile.
//
// If the object is here whole already, TakeFrom changes nothing. It returns ErrBusy if the object is being
// written, received or removed. It returns snapshot.ErrNotFound if the snapshot is not there, and
// ErrNotHere if it does not have the object. The error is a sentence if the snapshot, or this store, has
// another object. None of these errors changes anything. Otherwise what was here of the object, received in
// part or damaged, is dropped, also if an error of the disk ends the work.
func (s *Store) TakeFrom(id object.ID, bytes int64, hash [32]byte, from *snapshot.Store, of snapshot.ID) error {
	if err := s.importFrom(id, bytes, hash, from, of); err != nil {
		return fmt.Errorf("objects: take %v from snapshot %v: %w", id, of, err)
	}
	return nil
}

func (s *Store) importFrom(id object.ID, bytes int64, hash [32]byte, from *snapshot.Store, of snapshot.ID) error {
	if info, here := s.Info(id); here {
		return rejectOther(info, hash)
	}
	release, err := from.Pin(of)
	if err != nil {
		return err
	}
	defer release()
	if err := rejectParts(id, bytes, hash, from, of); err != nil {
		return err
	}
	w, err := s.replace(id)
	if errors.Is(err, snapshot.ErrPublished) { // it has come meanwhile
		info, _ := s.Info(id)
		return rejectOther(info, hash)
	}
	if err != nil {
		return err
	}
	err = w.w.LinkParts(snapshot.KindMachine, stream, snapshot.Source{Store: from, ID: of, Kind: snapshot.KindObject, Name: id.String()})
	if err == nil {
		err = w.publish()
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	return nil
}

// rejectOther says that the object that is here is not the one with this hash, or returns nil.
func rejectOther(info Info, hash [32]byte) error {
	if info.Hash != hash {
		return fmt.Errorf("this store has another object under this id, with the hash %x, want %x; remove it first", info.Hash, hash)
	}
	return nil
}

// rejectParts says why the parts that a pinned snapshot has under an id are not the object with this length
// and hash, or returns nil. It does not touch the disk.
func rejectParts(id object.ID, bytes int64, hash [32]byte, from *snapshot.Store, of snapshot.ID) error {
	theirs, err := from.Manifest(of)
	if err != nil {
		return err
	}
	first, n := theirs.Find(snapshot.KindObject, id.String())
	if n == 0 {
		return fmt.Errorf("the snapshot does not have it either; fetch it from a member: %w", ErrNotHere)
	}
	m := snapshot.Manifest{Index: the.Index, Term: the.Term}
	for _, p := range theirs.Parts[first : first+n] {
		p.Kind, p.Name = snapshot.KindMachine, stream
		m.Parts = append(m.Parts, p)
	}
	if err := RejectManifest(&m, bytes, hash); err != nil {
		return fmt.Errorf("its %d parts with %d bytes are not the object: %w; fetch it from a member", n, m.Bytes(), err)
	}
	return nil
}

// replace begins an object like Create, in the place of what is here of it. It returns
// snapshot.ErrPublished if the object is here whole.
func (s *Store) replace(id object.ID) (*Writer, error) {
	of, err := s.claim(id, true)
	if err != nil {
		return nil, err
	}
	w := &Writer{store: s, id: id, of: of}
	w.w, err = of.Create(the)
	switch {
	case errors.Is(err, snapshot.ErrBusy): // it is being received
		s.release(id, of)
		return nil, ErrBusy
	case errors.Is(err, snapshot.ErrPublished):
		s.release(id, of)
		return nil, err
	case err != nil:
		return nil, errors.Join(err, w.Abort())
	}
	return w, nil
}
