package snapshot

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// Parts that are on the disk already, in this store or in another one on the same filesystem, become parts of
// a snapshot by link: nothing is written or read, and the checksums are those of the manifest that names
// them.
//
// Invariant: only parts of published snapshots are linked, so their contents are durable, and never written
// to. SyncParts makes the new names durable, as it does with all parts.

// Source names the parts with one kind and name in a published snapshot: of this store, or of another one on
// the same vfs.FS. It does not keep the snapshot from being removed.
type Source struct {
	Store *Store
	ID    ID
	Kind  Kind
	Name  string
}

func (s *Source) String() string {
	return fmt.Sprintf("%v of snapshot %v in %s", label{s.Kind, s.Name}, s.ID, s.Store.dir)
}

// open returns the manifest and the numbers [lo, hi) of the parts, and pins the snapshot until release. It
// returns ErrNotFound if there is no such part, and a *DamageError if the snapshot is known to be damaged.
func (s *Source) open() (m *Manifest, lo, hi int, release func(), err error) {
	m, release, err = s.Store.pin(s.ID)
	if err != nil {
		return nil, 0, 0, nil, err
	}
	first, n := m.Find(s.Kind, s.Name)
	if n == 0 {
		release()
		return nil, 0, 0, nil, fmt.Errorf("%v: %w", s, ErrNotFound)
	}
	return m, first, first + n, release, nil
}

// LinkParts adds all parts of a source, in their order, as the content with this kind and name, which must be
// new. It links, and writes and reads nothing. On a filesystem without links it copies, and compares the
// content with the checksums. Whether linked content is still right, Verify finds out. The source is pinned
// meanwhile.
//
// If the source is not there, LinkParts returns ErrNotFound or the source's *DamageError, and the Writer is
// still good. If a part is missing, or wrong when it is copied, LinkParts returns a *DamageError about the
// source. The source leaves the List of its store; the Writer must then be aborted.
func (w *Writer) LinkParts(kind Kind, name string, from Source) error {
	if err := w.ready(); err != nil {
		return err
	}
	m, lo, hi, release, err := from.open()
	if err != nil {
		return fmt.Errorf("snapshot: write %v, %v: %w", w.id, label{kind, name}, err)
	}
	defer release()
	for i := lo; i < hi; i++ {
		if err := w.begin(kind, name, i > lo); err != nil {
			return err
		}
		if err := w.linkPart(kind, name, from.Store, m, i); err != nil {
			return err
		}
	}
	return nil
}

// Reuse adds a part whose content is in a published snapshot already: it links, and writes and reads nothing.
// The kind and the name are those of part; its length and SHA-256 choose the content. A part of the stream
// that was written last continues that stream. It returns ErrNotFound, and the Writer is still good, if the
// snapshot is not there or has no such content. Whether the content is still right, Verify finds out.
func (w *Writer) Reuse(part Part, from ID) error {
	if err := w.ready(); err != nil {
		return err
	}
	m, release, err := w.store.pin(from)
	if err != nil {
		return err
	}
	defer release()
	i := 0
	for ; i < len(m.Parts) && !m.Parts[i].sameContent(&part); i++ {
	}
	if i == len(m.Parts) {
		return fmt.Errorf("snapshot %v, a part with SHA-256 %x and %d bytes: %w", from, part.SHA256, part.Bytes, ErrNotFound)
	}
	if err := w.begin(part.Kind, part.Name, true); err != nil {
		return err
	}
	return w.linkPart(part.Kind, part.Name, w.store, m, i)
}

// linkPart makes the next part one that a pinned snapshot has: part i of m.
func (w *Writer) linkPart(kind Kind, name string, from *Store, m *Manifest, i int) error {
	p := m.Parts[i]
	p.Kind, p.Name = kind, name
	if why := rejectPart(&p); why != "" { // a long file cannot be a part of a stream
		return w.fail(&FormatError{What: fmt.Sprintf("part %d of snapshot %v in %s, as %v: %s", i, m.ID(), from.dir, label{kind, name}, why)})
	}
	file := filepath.Join(from.path(m.ID()), partFile(i))
	err := w.linkOrCopy(&p, m, file)
	if errors.Is(err, fs.ErrNotExist) { // of the two names, it is the source's that may be missing
		err = errors.Join(rejectLength(from, m, i), err)
	}
	if err != nil {
		from.delistDamaged(err)
		return w.fail(fmt.Errorf("link %s as %v: %w", file, label{kind, name}, err))
	}
	return w.add(p)
}

// linkOrCopy gives the next part its content: that of file, which m says to be p.
func (w *Writer) linkOrCopy(p *Part, m *Manifest, file string) error {
	err := w.store.fs.Link(file, filepath.Join(w.dir, partFile(len(w.parts))))
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	copied, err := w.copy(file)
	if err == nil && !copied.sameContent(p) {
		err = &DamageError{ID: m.ID(), File: file, Block: -1, What: fmt.Sprintf("it has %d bytes with the SHA-256 %x, want %d with %x", copied.Bytes, copied.SHA256, p.Bytes, p.SHA256)}
	}
	return err
}

// rejectLength says what is wrong with the file of a part, without reading it, or returns nil.
func rejectLength(s *Store, m *Manifest, i int) error {
	f, err := openPart(s.fs, s.path(m.ID()), m, i)
	if err != nil {
		return err
	}
	return f.Close()
}
