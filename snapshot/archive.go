package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"path/filepath"
)

// An archive is a snapshot in one file, for a backup. Numbers are little endian.
//
//	 0        8        12       16
//	+--------+--------+--------+-------------------+----------------------------+---------+
//	| magic  | version| length | manifest:         | content of all parts,      | SHA-256 |
//	| 8      | 4      | 4      | length bytes      | in the order of the        | 32      |
//	|        |        |        | (codec.go)        | manifest, without gaps     |         |
//	+--------+--------+--------+-------------------+----------------------------+---------+
//
// The manifest has the checksum of each block and the length of each part, so the content needs no frames,
// and a damaged block is found before a byte of it is handed out. The SHA-256 is that of all that is before
// it. Nothing follows it. Rejected: tar. Its headers say again what the manifest says, and could disagree
// with it.
const (
	archiveMagic     = "MRACEARC"
	archiveVersion   = 1
	archiveHeadBytes = 16
)

// ArchiveError says that an archive is not what WriteArchive wrote.
type ArchiveError struct {
	Offset int64 // in the archive, in bytes
	What   string
	Err    error // of the reader, or of the manifest; nil: none
}

func (e *ArchiveError) Error() string {
	text := fmt.Sprintf("snapshot: the archive is damaged at offset %d: %s", e.Offset, e.What)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text + "; use another copy of it, or an older archive"
}

// Unwrap returns the error that was met.
func (e *ArchiveError) Unwrap() error { return e.Err }

// WriteArchive writes the snapshot as an archive, and returns its length in bytes. Each block is checked when
// it is read: a *DamageError means that the snapshot is damaged. After any error what was written is no
// archive. Making it durable is the caller's work.
func (r *Reader) WriteArchive(ctx context.Context, w io.Writer) (n int64, err error) {
	manifest, err := r.manifest.Append(nil)
	if err != nil {
		return 0, err
	}
	out := &summedWriter{w: w, whole: sha256.New()}
	head := binary.LittleEndian.AppendUint32([]byte(archiveMagic), archiveVersion)
	head = binary.LittleEndian.AppendUint32(head, uint32(len(manifest)))
	if err := errors.Join(out.write(head), out.write(manifest)); err != nil {
		return out.n, err
	}
	for i := range r.manifest.Parts {
		if err := r.writePart(ctx, out, i); err != nil {
			return out.n, err
		}
	}
	err = out.write(out.whole.Sum(nil))
	return out.n, err
}

func (r *Reader) writePart(ctx context.Context, out *summedWriter, i int) (err error) {
	f, err := openPart(r.store.fs, r.dir, r.manifest, i)
	if err != nil {
		r.store.delistDamaged(err)
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p := &r.manifest.Parts[i]
	buf := make([]byte, min(BlockBytes, p.Bytes))
	for b := range p.Blocks() {
		if ctx.Err() != nil {
			return fmt.Errorf("snapshot: archive %v: %w", r.manifest.ID(), context.Cause(ctx))
		}
		piece := buf[:p.blockBytes(b)]
		if err := readBlock(f, p, b, piece); err != nil {
			err = damaged(r.manifest, filepath.Join(r.dir, partFile(i)), b, err)
			r.store.delistDamaged(err)
			return err
		}
		if err := out.write(piece); err != nil {
			return err
		}
	}
	return nil
}

// summedWriter counts and sums what it writes. After the first error it writes nothing.
type summedWriter struct {
	w     io.Writer
	whole hash.Hash
	n     int64
	err   error
}

func (s *summedWriter) write(b []byte) error {
	if s.err != nil {
		return s.err
	}
	n, err := s.w.Write(b)
	s.n += int64(n)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		s.err = fmt.Errorf("snapshot: write the archive at offset %d: %w", s.n, err)
		return s.err
	}
	s.whole.Write(b)
	return nil
}

// ArchiveReader reads an archive from its beginning to its end, block by block. It is for one goroutine. What
// it allocates is bounded by what the archive has, and by MaxManifestBytes.
type ArchiveReader struct {
	r        io.Reader
	manifest Manifest
	whole    hash.Hash
	sum      hash.Hash // of the part
	n        int64     // read
	part     int
	block    int64
	buf      []byte
	err      error // the first one, or io.EOF: the archive is whole
}

// OpenArchive reads the beginning of an archive, and its manifest. Every error about the content is an
// *ArchiveError.
func OpenArchive(r io.Reader) (*ArchiveReader, error) {
	a := &ArchiveReader{r: r, whole: sha256.New(), sum: sha256.New()}
	head := make([]byte, archiveHeadBytes)
	if err := a.fill(head, "the beginning of an archive"); err != nil {
		return nil, err
	}
	le := binary.LittleEndian
	length := le.Uint32(head[12:])
	switch {
	case string(head[:8]) != archiveMagic:
		return nil, &ArchiveError{What: fmt.Sprintf("it begins with %q, want %q", head[:8], archiveMagic)}
	case le.Uint32(head[8:]) != archiveVersion:
		return nil, &ArchiveError{Offset: 8, What: fmt.Sprintf("it has format version %d, and this program reads version %d", le.Uint32(head[8:]), archiveVersion)}
	case length > MaxManifestBytes:
		return nil, &ArchiveError{Offset: 12, What: fmt.Sprintf("it names a manifest of %d bytes, want at most %d", length, MaxManifestBytes)}
	}
	var manifest bytes.Buffer // it grows with what is there
	n, err := io.CopyN(&manifest, r, int64(length))
	if err != nil {
		return nil, a.fail(archiveHeadBytes+n, fmt.Sprintf("it ends after %d bytes of the manifest, want %d", n, length), err)
	}
	a.whole.Write(manifest.Bytes())
	a.n += n
	if a.manifest, err = DecodeManifest(manifest.Bytes()); err != nil {
		return nil, a.fail(archiveHeadBytes, "its manifest is wrong", err)
	}
	return a, nil
}

// Manifest returns the manifest. The caller must not change what it refers to.
func (a *ArchiveReader) Manifest() Manifest { return a.manifest }

// Next returns the next block with its place, as Receiver.Put takes it. The bytes are valid until the next
// call. It returns io.EOF when the archive has ended where it must, and every checksum was right. Before
// that, the caller must not rely on what was read.
func (a *ArchiveReader) Next() (part int, block int64, raw []byte, err error) {
	for a.err == nil && a.part < len(a.manifest.Parts) {
		p := &a.manifest.Parts[a.part]
		if a.block < p.Blocks() {
			raw, a.err = a.next(p)
			part, block = a.part, a.block
			a.block++
			return part, block, raw, a.err
		}
		if have := sumOf(a.sum); have != p.SHA256 {
			return 0, 0, nil, a.fail(a.n, fmt.Sprintf("part %d has the SHA-256 %x, want %x", a.part, have, p.SHA256), nil)
		}
		a.part, a.block = a.part+1, 0
		a.sum.Reset()
	}
	if a.err == nil {
		a.err = a.end()
	}
	return 0, 0, nil, a.err
}

// next reads a block of a part.
func (a *ArchiveReader) next(p *Part) ([]byte, error) {
	if a.buf == nil {
		a.buf = make([]byte, BlockBytes)
	}
	raw, at := a.buf[:p.blockBytes(a.block)], a.n
	if err := a.fill(raw, fmt.Sprintf("block %d of part %d", a.block, a.part)); err != nil {
		return nil, err
	}
	if have := crc32.Checksum(raw, castagnoli); have != p.Sums[a.block] {
		return nil, a.fail(at, fmt.Sprintf("block %d of part %d has the CRC32C %#08x, want %#08x", a.block, a.part, have, p.Sums[a.block]), nil)
	}
	a.sum.Write(raw)
	return raw, nil
}

// end reads what follows the last part. It returns io.EOF if all is well.
func (a *ArchiveReader) end() error {
	want, at := a.whole.Sum(nil), a.n
	have := make([]byte, sha256.Size)
	if err := a.fill(have, "the SHA-256 at the end"); err != nil {
		return err
	}
	if !bytes.Equal(have, want) {
		return a.fail(at, fmt.Sprintf("it ends with the SHA-256 %x, want %x", have, want), nil)
	}
	switch n, err := io.ReadFull(a.r, have[:1]); {
	case n > 0:
		return a.fail(a.n, "bytes follow the SHA-256", nil)
	case err != io.EOF:
		return a.fail(a.n, "it cannot be read to its end", err)
	}
	return io.EOF
}

// fill reads the whole of b.
func (a *ArchiveReader) fill(b []byte, what string) error {
	n, err := io.ReadFull(a.r, b)
	a.whole.Write(b[:n])
	a.n += int64(n)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return a.fail(a.n, fmt.Sprintf("it ends within %s, %d bytes too early", what, len(b)-n), nil)
	}
	if err != nil {
		return a.fail(a.n, what+" cannot be read", err)
	}
	return nil
}

func (a *ArchiveReader) fail(at int64, what string, err error) error {
	a.err = &ArchiveError{Offset: at, What: what, Err: err}
	return a.err
}

// Verify reads the rest of the archive, and returns nil if all of it is right.
func (a *ArchiveReader) Verify(ctx context.Context) error {
	for {
		if ctx.Err() != nil {
			return fmt.Errorf("snapshot: verify an archive: %w", context.Cause(ctx))
		}
		if _, _, _, err := a.Next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}
