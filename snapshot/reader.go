package snapshot

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/vfs"
)

// Reader reads a published snapshot, which stays until Close. Stream and ReadBlocks may be called
// concurrently. A block that is not what the manifest says is a *DamageError, and the snapshot leaves
// Store.List.
type Reader struct {
	store    *Store
	manifest *Manifest
	dir      string
	release  func()
}

// Open returns a Reader of a published snapshot, or ErrNotFound. It does not touch the disk.
func (s *Store) Open(id ID) (*Reader, error) {
	m, release, err := s.pin(id)
	if err != nil {
		return nil, err
	}
	return &Reader{store: s, manifest: m, dir: s.path(id), release: release}, nil
}

// Manifest returns the snapshot's manifest. The caller must not change what it refers to.
func (r *Reader) Manifest() Manifest { return *r.manifest }

// Close lets the snapshot be removed. It may be called again. Streams must be closed before.
func (r *Reader) Close() error {
	r.release()
	return nil
}

// ReadBlocks returns the contents of consecutive blocks of a part, starting at block. It returns as many
// whole blocks as maxBytes takes and the part has, at least one, each checked. Receiver.Put takes them. The
// last block of a part is shorter than BlockBytes.
func (r *Reader) ReadBlocks(part int, block int64, maxBytes int) (raw []byte, err error) {
	return r.AppendBlocks(nil, part, block, maxBytes)
}

// AppendBlocks appends to dst what ReadBlocks returns, so that a caller can use its memory again. After an
// error it returns dst as it was.
func (r *Reader) AppendBlocks(dst []byte, part int, block int64, maxBytes int) (_ []byte, err error) {
	if part < 0 || part >= len(r.manifest.Parts) || block < 0 || block >= r.manifest.Parts[part].Blocks() {
		return dst, fmt.Errorf("snapshot %v has no block %d of part %d", r.manifest.ID(), block, part)
	}
	p := &r.manifest.Parts[part]
	f, err := openPart(r.store.fs, r.dir, r.manifest, part)
	if err != nil {
		r.store.delistDamaged(err)
		return dst, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	n := min(max(1, int64(maxBytes/BlockBytes)), p.Blocks()-block)
	size := int(min(n*BlockBytes, p.Bytes-block*BlockBytes))
	raw := slices.Grow(dst, size)[:len(dst)+size]
	for i := range n {
		piece := raw[int64(len(dst))+i*BlockBytes:]
		if err := readBlock(f, p, block+i, piece[:p.blockBytes(block+i)]); err != nil {
			err = damaged(r.manifest, filepath.Join(r.dir, partFile(part)), block+i, err)
			r.store.delistDamaged(err)
			return dst, err
		}
	}
	return raw, nil
}

// Stream returns the content of the parts with this kind and name, in their order. It returns ErrNotFound if
// there are none. The stream is for one goroutine at a time.
func (r *Reader) Stream(kind Kind, name string) (io.ReadCloser, error) {
	first, n := r.manifest.Find(kind, name)
	if n == 0 {
		return nil, fmt.Errorf("snapshot %v, %v: %w", r.manifest.ID(), label{kind, name}, ErrNotFound)
	}
	return &streamReader{reader: r, part: first, end: first + n}, nil
}

// Link gives part, a file of the machine (KindFile), a second name on the same filesystem, for a machine that
// continues with the file as it is. The file must not be changed under either name, and to must be made
// durable by the caller, with its directory. The content is not read. It returns errors.ErrUnsupported if the
// filesystem cannot link: the caller copies then (Stream).
func (r *Reader) Link(name, to string) error {
	i, n := r.manifest.Find(KindFile, name)
	if n == 0 {
		return fmt.Errorf("snapshot %v, %v: %w", r.manifest.ID(), label{KindFile, name}, ErrNotFound)
	}
	if err := r.store.fs.Link(filepath.Join(r.dir, partFile(i)), to); err != nil {
		return fmt.Errorf("snapshot %v: link %v: %w", r.manifest.ID(), label{KindFile, name}, err)
	}
	return nil
}

// streamReader reads block by block. Nothing is handed out that was not checked.
type streamReader struct {
	reader    *Reader
	part, end int
	block     int64
	file      vfs.File // of part, nil: not open
	buf       []byte
	left      []byte // of buf
	err       error
}

func (s *streamReader) Read(p []byte) (int, error) {
	for len(s.left) == 0 && s.err == nil {
		s.err = s.fill()
	}
	if len(s.left) == 0 {
		return 0, s.err
	}
	n := copy(p, s.left)
	s.left = s.left[n:]
	return n, nil
}

// fill reads the next block, or moves to the next part.
func (s *streamReader) fill() error {
	if s.part == s.end {
		return io.EOF
	}
	m, dir := s.reader.manifest, s.reader.dir
	p := &m.Parts[s.part]
	if s.file == nil {
		f, err := openPart(s.reader.store.fs, dir, m, s.part)
		if err != nil {
			s.reader.store.delistDamaged(err)
			return err
		}
		s.file, s.block = f, 0
	}
	if s.block == p.Blocks() {
		f := s.file
		s.file, s.part = nil, s.part+1
		return f.Close()
	}
	if s.buf == nil {
		s.buf = make([]byte, BlockBytes)
	}
	piece := s.buf[:p.blockBytes(s.block)]
	if err := readBlock(s.file, p, s.block, piece); err != nil {
		err = damaged(m, filepath.Join(dir, partFile(s.part)), s.block, err)
		s.reader.store.delistDamaged(err)
		return err
	}
	s.block++
	s.left = piece
	return nil
}

// Close ends the stream before its end.
func (s *streamReader) Close() error {
	s.left, s.err = nil, ErrEnded
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	return f.Close()
}
