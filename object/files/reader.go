package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/snapshot"
)

// RejectManifest says why a manifest, which may come from another host, is not that of an object with this
// length and hash, or returns nil.
func RejectManifest(m *snapshot.Manifest, bytes int64, hash [32]byte) error {
	if err := m.Validate(); err != nil {
		return err
	}
	switch first, n := m.Find(snapshot.KindMachine, stream); {
	case m.Hash() != hash:
		return errors.New("the manifest has another hash than the object")
	case m.ID() != the || first != 0 || n != len(m.Parts) || n == 0 || m.Cluster != 0 || m.Group != 0 || len(m.Host) > 0 || len(m.Members) > 0 || m.Machine != "":
		return errors.New("the manifest is one of a snapshot, and not of an object")
	case m.Bytes() != bytes:
		return fmt.Errorf("the manifest is of %d bytes, and the object has %d", m.Bytes(), bytes)
	}
	for i := range m.Parts {
		if m.Parts[i].Bytes == 0 && len(m.Parts) > 1 {
			return fmt.Errorf("part %d of the object is empty", i)
		}
	}
	return nil
}

// Receive begins to receive an object with this manifest, or continues with it (snapshot.Receiver). When the
// receiver has published it, it is in List. A manifest must not be one that RejectManifest rejects. The
// errors are those of snapshot.Store.Receive: snapshot.ErrPublished means that the object is here.
func (s *Store) Receive(ctx context.Context, id object.ID, m snapshot.Manifest) (*snapshot.Receiver, error) {
	of, err := s.claim(id, true)
	if err != nil {
		return nil, fmt.Errorf("objects: receive %v: %w", id, err)
	}
	defer s.release(id, of) // from here on the snapshot.Store says that it is busy
	r, err := of.Receive(ctx, m)
	if errors.Is(err, snapshot.ErrBusy) {
		return nil, fmt.Errorf("objects: receive %v: %w", id, ErrBusy)
	}
	return r, err
}

// Unfinished returns the manifest of an object that was received in part and is not being received. It does
// not touch the disk.
func (s *Store) Unfinished(id object.ID) (m snapshot.Manifest, ok bool) {
	if of := s.get(id); of != nil {
		return of.Unfinished()
	}
	return m, false
}

// Blocks returns a reader of the blocks of an object, for a member that fetches it. It keeps the object from
// being removed until it is closed.
func (s *Store) Blocks(id object.ID) (*snapshot.Reader, error) {
	of := s.get(id)
	if of == nil {
		return nil, fmt.Errorf("objects: read %v: %w", id, ErrNotHere)
	}
	r, err := of.Open(the)
	if damage := (*snapshot.DamageError)(nil); errors.Is(err, snapshot.ErrNotFound) || errors.As(err, &damage) {
		err = fmt.Errorf("objects: read %v: %w", id, ErrNotHere)
	}
	return r, err
}

// File is the content of an object, to be read. It keeps the object from being removed until it is closed. It
// is safe for concurrent use. What does not have its checksum is a *snapshot.DamageError.
type File struct {
	of     *Store
	id     object.ID
	r      *snapshot.Reader
	starts []int64 // of the parts
	size   int64
}

var _ io.ReaderAt = (*File)(nil)

// OpenFile opens the content of an object. It does not touch the disk.
func (s *Store) OpenFile(id object.ID) (*File, error) {
	r, err := s.Blocks(id)
	if err != nil {
		return nil, err
	}
	f := &File{of: s, id: id, r: r}
	m := r.Manifest()
	for i := range m.Parts {
		f.starts = append(f.starts, f.size)
		f.size += m.Parts[i].Bytes
	}
	return f, nil
}

// Size returns the length of the content.
func (f *File) Size() int64 { return f.size }

// Close ends the reading.
func (f *File) Close() error { return f.r.Close() }

// readBytes bounds what ReadAt takes from the disk at once.
const readBytes = 1 << 20

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if off < 0 {
		return 0, fmt.Errorf("objects: read at %d, want at least 0", off)
	}
	for n < len(p) {
		at := off + int64(n)
		if at >= f.size {
			return n, io.EOF
		}
		part, begins := slices.BinarySearch(f.starts, at)
		if !begins {
			part--
		}
		block := (at - f.starts[part]) / snapshot.BlockBytes
		raw, err := f.r.ReadBlocks(part, block, min(readBytes, len(p)-n+snapshot.BlockBytes))
		if err != nil {
			if damage := (*snapshot.DamageError)(nil); errors.As(err, &damage) && f.of.Damage != nil {
				f.of.Damage(f.id)
			}
			return n, err
		}
		n += copy(p[n:], raw[at-f.starts[part]-block*snapshot.BlockBytes:])
	}
	return n, nil
}
