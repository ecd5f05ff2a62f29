package snapshot

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"

	"github.com/millrace/millrace/vfs"
)

// Writer makes a snapshot: first its parts, then SyncParts, then Publish. Only what was published is ever
// seen. After any error the snapshot cannot be completed any more, because what the disk holds of it is not
// known: call Abort. A Writer is for one goroutine at a time.
type Writer struct {
	store *Store
	id    ID
	dir   string
	names vfs.Dir // dir, held so that no lack of descriptors comes between a name and its sync
	parts []Part
	// labels are those of the parts so far, and last is the newest.
	labels map[label]bool
	last   label
	// bytes is what the parts take in the manifest so far.
	bytes  int64
	stream *streamWriter           // the open one
	before map[string]verifiedFile // of the snapshot before; nil until one is linked
	synced bool                    // nothing was added since SyncParts
	ended  bool
	err    error // the first one
}

// maxPartsBytes leaves 1 MiB of a manifest to what is not a part. A larger block of the host is found by
// Publish.
const maxPartsBytes = MaxManifestBytes - 1<<20

// Create begins a snapshot. A store makes one at a time: ErrBusy. It returns ErrPublished if there is one
// with this id. An unfinished receive with this id is removed.
func (s *Store) Create(id ID) (*Writer, error) {
	if id.Index == 0 || id.Term == 0 {
		return nil, fmt.Errorf("snapshot: create %v: index and term must be at least 1", id)
	}
	if err := s.claim(id, &s.writing); err != nil {
		return nil, fmt.Errorf("snapshot: create %v in %s: %w", id, s.dir, err)
	}
	s.forget(id)
	err := s.removeDir(id)
	if err == nil {
		err = s.makeDir(id)
	}
	var names vfs.Dir
	if err == nil {
		names, err = s.fs.OpenDir(s.path(id))
	}
	if err != nil {
		s.end(id, &s.writing, true)
		return nil, fmt.Errorf("snapshot: create %v in %s: %w", id, s.dir, err)
	}
	return &Writer{store: s, id: id, dir: s.path(id), names: names, labels: map[label]bool{}}, nil
}

// claim takes a directory for a Writer or a Receiver, of which there is one each at a time.
func (s *Store) claim(id ID, working *bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.published[id] != nil:
		return ErrPublished
	case *working || s.busy[id]:
		return ErrBusy
	case s.stuck[id] != nil:
		return s.stuck[id]
	}
	*working, s.busy[id] = true, true
	return nil
}

// forget takes what is in a directory, a damaged snapshot or an unfinished receive, out of the lists.
func (s *Store) forget(id ID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.damaged, id)
	delete(s.unfinished, id)
}

// end gives a directory back. It is a leftover if it could not be removed.
func (s *Store) end(id ID, working *bool, leftover bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*working = false
	delete(s.busy, id)
	if leftover {
		delete(s.unfinished, id)
		s.leftover[id] = true
	} else {
		delete(s.leftover, id)
	}
}

// fail stops the writer for good.
func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = fmt.Errorf("snapshot: write %v in %s: %w", w.id, w.store.dir, err)
	}
	return w.err
}

// ready says why nothing can be added now, or nil.
func (w *Writer) ready() error {
	switch {
	case w.ended:
		return fmt.Errorf("snapshot: write %v in %s: %w", w.id, w.store.dir, ErrEnded)
	case w.err != nil:
		return w.err
	case w.stream != nil:
		return fmt.Errorf("snapshot: write %v: the stream %v is open; close it first", w.id, w.stream.label)
	}
	return nil
}

// begin checks kind and name of a new part, or of a new stream.
func (w *Writer) begin(kind Kind, name string, more bool) error {
	if err := w.ready(); err != nil {
		return err
	}
	if why := rejectPart(&Part{Kind: kind, Name: name}); why != "" {
		return w.fail(&FormatError{What: why})
	}
	l := label{kind, name}
	if continues := more && kind != KindFile && l == w.last; w.labels[l] && !continues {
		return w.fail(&FormatError{What: fmt.Sprintf("%v was written before", l)})
	}
	w.labels[l], w.last = true, l
	w.synced = false
	return nil
}

// add adds a complete part.
func (w *Writer) add(p Part) error {
	w.bytes += partBytes(len(p.Name)) + 4*int64(len(p.Sums))
	if w.bytes > maxPartsBytes || len(w.parts) == MaxParts {
		return w.fail(&FormatError{What: fmt.Sprintf("parts %d and more take %d bytes of the manifest, want at most %d in %d parts; the content is too large for one snapshot", len(w.parts), w.bytes, maxPartsBytes, MaxParts)})
	}
	w.parts = append(w.parts, p)
	return nil
}

// Parts returns the parts so far. The caller must not change them.
func (w *Writer) Parts() []Part { return w.parts }

// Stream returns a writer of the content with this kind (any but KindFile) and name, which must be new. The
// content is split into parts, each of which is synced when it is complete. One stream is open at a time. A
// stream without content is an empty part. If Write or Close fails, so does everything that follows.
func (w *Writer) Stream(kind Kind, name string) (io.WriteCloser, error) {
	if kind == KindFile {
		return nil, w.fail(&FormatError{What: fmt.Sprintf("%v is no stream; hand it over with Link", label{kind, name})})
	}
	if err := w.begin(kind, name, false); err != nil {
		return nil, err
	}
	w.stream = &streamWriter{w: w, label: label{kind, name}}
	return w.stream, nil
}

// Link adds an immutable regular file of the machine as one part, with a hard link, or a copy if the
// filesystem cannot link it. The file is read once, for its checksums, and synced; one that the newest
// verified snapshot has under the same name is neither. It must not change any more under any of its names;
// removing its name is right.
func (w *Writer) Link(name, file string) (Part, error) {
	if err := w.begin(KindFile, name, false); err != nil {
		return Part{}, err
	}
	p, err := w.link(name, file)
	if err != nil {
		return Part{}, w.fail(fmt.Errorf("link %s as %q: %w", file, name, err))
	}
	p.Kind, p.Name = KindFile, name
	return p, w.add(p)
}

// link makes the next part of a file, and returns its checksums.
func (w *Writer) link(label, file string) (Part, error) {
	fsys, name := w.store.fs, filepath.Join(w.dir, partFile(len(w.parts)))
	switch err := fsys.Link(file, name); {
	case errors.Is(err, errors.ErrUnsupported):
		return w.copy(file)
	case err != nil:
		return Part{}, err
	}
	if p, ok := w.linkedBefore(label, name); ok {
		return p, nil
	}
	f, err := fsys.Open(name)
	if errors.Is(err, fs.ErrPermission) { // its mode forbids writing; it cannot be synced without
		if err := fsys.Remove(name); err != nil {
			return Part{}, err
		}
		return w.copy(file)
	}
	if err != nil {
		return Part{}, err
	}
	p, err := sumPart(f, nil, 0)
	if err == nil {
		err = f.Sync()
	}
	return p, errors.Join(err, f.Close())
}

// linkedBefore returns the part of the newest verified snapshot that is a file of the machine with this name,
// if it is the same file as another one: its checksums are known, and it is durable. If that snapshot is
// removed meanwhile, no part of it is the same file.
func (w *Writer) linkedBefore(label, file string) (Part, bool) {
	if w.before == nil {
		w.before = w.store.verifiedFiles()
	}
	p, known := w.before[label]
	if !known {
		return Part{}, false
	}
	same, err := vfs.SameFile(w.store.fs, p.path, file)
	return p.part, same && err == nil
}

// verifiedFile is a file of the machine in a verified snapshot.
type verifiedFile struct {
	part Part
	path string
}

// verifiedFiles returns the files of the newest verified snapshot, by name.
func (s *Store) verifiedFiles() map[string]verifiedFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := map[string]verifiedFile{}
	id := s.newestVerified()
	e := s.published[id]
	if e == nil {
		return files
	}
	for i, p := range e.manifest.Parts {
		if p.Kind == KindFile {
			files[p.Name] = verifiedFile{p, filepath.Join(s.path(id), partFile(i))}
		}
	}
	return files
}

// copy makes the next part a copy of a file.
func (w *Writer) copy(file string) (p Part, err error) {
	from, err := vfs.ReadOnly(w.store.fs).Open(file)
	if err != nil {
		return Part{}, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	to, err := w.store.fs.Create(filepath.Join(w.dir, partFile(len(w.parts))))
	if err != nil {
		return Part{}, err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	if p, err = sumPart(from, to, w.store.pace); err != nil {
		return Part{}, err
	}
	return p, to.Sync()
}

// sumPart reads a file to its end and returns length and checksums. It writes what it reads to a copy, if
// there is one, which the disk is given every few bytes (paced).
func sumPart(f, to vfs.File, every int64) (Part, error) {
	size, err := f.Size()
	if err != nil {
		return Part{}, err
	}
	p, whole, pace := Part{Bytes: size}, sha256.New(), pacedFile{paced: paced{every: every}}
	if 4*blocksOf(size) > MaxManifestBytes {
		return Part{}, &FormatError{What: fmt.Sprintf("file of %d bytes, want at most %d", size, int64(MaxManifestBytes)/4*BlockBytes)}
	}
	buf := make([]byte, min(BlockBytes, size))
	for b := range blocksOf(size) {
		piece := buf[:p.blockBytes(b)]
		if n, err := f.ReadAt(piece, b*BlockBytes); n < len(piece) {
			return Part{}, err
		}
		if to != nil {
			if _, err := to.WriteAt(piece, b*BlockBytes); err != nil {
				return Part{}, err
			}
			if err := pace.wrote(to, b*BlockBytes, len(piece)); err != nil {
				return Part{}, err
			}
		}
		whole.Write(piece)
		p.Sums = append(p.Sums, crc32.Checksum(piece, castagnoli))
	}
	p.SHA256 = sumOf(whole)
	return p, nil
}

// SyncParts makes all parts durable, contents and names.
func (w *Writer) SyncParts() error {
	if err := w.ready(); err != nil {
		return err
	}
	// The contents were synced one by one, when each part was complete.
	if err := w.names.Sync(); err != nil {
		return w.fail(err)
	}
	w.synced = true
	return nil
}

// Publish writes the manifest, with the parts that were written, and publishes the snapshot. The caller
// leaves Parts empty. It is an error if SyncParts was not called since the last part. When Publish returns
// nil, the snapshot is in Store.List, durable, and not Verified: that takes Store.Verify.
func (w *Writer) Publish(m Manifest) error {
	if err := w.ready(); err != nil {
		return err
	}
	switch {
	case !w.synced:
		return w.fail(errors.New("parts are not synced; call SyncParts before Publish"))
	case m.ID() != w.id:
		return w.fail(fmt.Errorf("the manifest is of snapshot %v", m.ID()))
	case len(m.Parts) > 0:
		return w.fail(fmt.Errorf("the manifest names %d parts itself; leave them to Publish", len(m.Parts)))
	}
	m.Parts = w.parts
	b, err := m.Append(nil)
	if err != nil {
		return w.fail(err)
	}
	if err := w.publish(b); err != nil {
		return w.fail(err)
	}
	// What is kept shares no memory with the caller.
	kept, err := DecodeManifest(b)
	if err != nil {
		return w.fail(err)
	}
	w.ended = true
	_ = w.names.Close() // all that it was for is durable
	w.store.addPublished(&kept, false)
	w.store.end(w.id, &w.store.writing, false)
	return nil
}

// publish writes MANIFEST. What it names is durable.
func (w *Writer) publish(manifest []byte) error {
	fsys, dir := w.store.fs, w.dir
	if err := writeDraft(fsys, dir, manifestFile, manifest); err != nil {
		return err
	}
	if err := fsys.Rename(filepath.Join(dir, manifestFile+draftSuffix), filepath.Join(dir, manifestFile)); err != nil {
		return err
	}
	return w.names.Sync()
}

// Abort removes what was written. It is right after an error, and does nothing after Publish or another
// Abort. If it fails, the store tries again with the next Prune, and when it is opened.
func (w *Writer) Abort() error {
	if w.ended {
		return nil
	}
	w.ended = true
	if w.stream != nil {
		w.stream.drop()
	}
	_ = w.names.Close() // nothing of it counts
	err := w.store.removeDir(w.id)
	w.store.end(w.id, &w.store.writing, err != nil)
	return err
}

// streamWriter splits a stream into blocks and parts.
type streamWriter struct {
	w     *Writer
	label label
	file  vfs.File // of the part that is being written; nil: none
	paced pacedFile
	part  Part
	whole hash.Hash
	buf   []byte // the beginning of a block
	any   bool   // a part was begun
	done  bool
}

// Write implements io.Writer.
func (s *streamWriter) Write(p []byte) (n int, err error) {
	if s.done {
		return 0, fmt.Errorf("snapshot: write %v, %v: %w", s.w.id, s.label, ErrEnded)
	}
	if s.w.err != nil {
		return 0, s.w.err
	}
	if s.buf == nil {
		s.buf = make([]byte, 0, BlockBytes)
	}
	for len(p) > 0 {
		k := min(len(p), BlockBytes-len(s.buf))
		s.buf = append(s.buf, p[:k]...)
		p, n = p[k:], n+k
		if len(s.buf) == BlockBytes {
			if err := s.writeBlock(); err != nil {
				return n - k, s.w.fail(err)
			}
		}
	}
	return n, nil
}

// writeBlock writes the buffered block, and completes the part if it is full.
func (s *streamWriter) writeBlock() error {
	if err := s.beginPart(); err != nil {
		return err
	}
	if _, err := s.file.WriteAt(s.buf, s.part.Bytes); err != nil {
		return err
	}
	if err := s.paced.wrote(s.file, s.part.Bytes, len(s.buf)); err != nil {
		return err
	}
	s.whole.Write(s.buf)
	s.part.Sums = append(s.part.Sums, crc32.Checksum(s.buf, castagnoli))
	s.part.Bytes += int64(len(s.buf))
	s.buf = s.buf[:0]
	if s.part.Bytes == PartBytes {
		return s.endPart()
	}
	return nil
}

func (s *streamWriter) beginPart() error {
	if s.file != nil {
		return nil
	}
	f, err := s.w.store.fs.Create(filepath.Join(s.w.dir, partFile(len(s.w.parts))))
	if err != nil {
		return err
	}
	s.file, s.any, s.whole, s.paced = f, true, sha256.New(), pacedFile{paced: paced{every: s.w.store.pace}}
	s.part = Part{Kind: s.label.kind, Name: s.label.name}
	return nil
}

func (s *streamWriter) endPart() error {
	f := s.file
	s.file = nil
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	s.part.SHA256 = sumOf(s.whole)
	return s.w.add(s.part)
}

// Close completes the stream.
func (s *streamWriter) Close() error {
	if s.done {
		return nil
	}
	s.done, s.w.stream = true, nil
	if s.w.err != nil {
		s.drop()
		return s.w.err
	}
	if err := s.complete(); err != nil {
		s.drop()
		return s.w.fail(err)
	}
	return nil
}

func (s *streamWriter) complete() error {
	if len(s.buf) > 0 {
		if err := s.writeBlock(); err != nil {
			return err
		}
	}
	if !s.any {
		if err := s.beginPart(); err != nil {
			return err
		}
	}
	if s.file == nil {
		return nil
	}
	return s.endPart()
}

// drop closes the file of a part that will not be completed.
func (s *streamWriter) drop() {
	s.done = true
	if s.file != nil {
		_ = s.file.Close() // the part is removed
		s.file = nil
	}
}
