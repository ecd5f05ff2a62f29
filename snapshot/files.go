package snapshot

import (
	"bytes"
	"context"
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

// What the files of a snapshot have in common: small files that are read and written whole, and parts that
// are checked against a manifest.

// writeDraft writes a small file under a name of a draft, and syncs it. The caller renames it.
func writeDraft(fsys vfs.FS, dir, name string, content []byte) (err error) {
	draft := filepath.Join(dir, name+draftSuffix)
	if err := fsys.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := fsys.Create(draft)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(content, 0); err != nil {
		return err
	}
	return f.Sync()
}

// readSmall reads a file of at most MaxManifestBytes.
func readSmall(fsys vfs.FS, name string) (content []byte, err error) {
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > MaxManifestBytes {
		return nil, &FormatError{What: fmt.Sprintf("manifest has %d bytes, want at most %d", size, MaxManifestBytes)}
	}
	content = make([]byte, size)
	if n, err := f.ReadAt(content, 0); n < len(content) {
		return nil, err
	}
	return content, nil
}

// readManifest reads a MANIFEST or an OFFER. A wrong one is a *DamageError.
func readManifest(fsys vfs.FS, name string, id ID) (*Manifest, error) {
	b, err := readSmall(fsys, name)
	var m Manifest
	if err == nil {
		m, err = DecodeManifest(b)
	}
	var format *FormatError
	switch {
	case errors.As(err, &format):
		return nil, &DamageError{ID: id, File: name, Block: -1, What: "it cannot be read", Err: err}
	case errors.Is(err, fs.ErrNotExist):
		return nil, &DamageError{ID: id, File: name, Block: -1, What: "it is missing"}
	case err != nil:
		return nil, fmt.Errorf("snapshot: read %s: %w", name, err)
	case m.ID() != id:
		return nil, &DamageError{ID: id, File: name, Block: -1, What: fmt.Sprintf("it is the manifest of snapshot %v", m.ID())}
	}
	return &m, nil
}

// readDirectory reads the MANIFEST of a directory and compares the lengths of the parts with it.
func readDirectory(fsys vfs.FS, dir string, id ID) (*Manifest, error) {
	m, err := readManifest(fsys, filepath.Join(dir, manifestFile), id)
	if err != nil {
		return nil, err
	}
	for i := range m.Parts {
		f, err := openPart(fsys, dir, m, i)
		if err != nil {
			return nil, err
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("snapshot: close %s: %w", filepath.Join(dir, partFile(i)), err)
		}
	}
	return m, nil
}

// openPart opens part i, and checks its length.
func openPart(fsys vfs.FS, dir string, m *Manifest, i int) (vfs.File, error) {
	return openFile(fsys, filepath.Join(dir, partFile(i)), m, i)
}

func openFile(fsys vfs.FS, name string, m *Manifest, i int) (vfs.File, error) {
	// Without the right to write: the part may be a file of the machine, and nothing here writes to a part.
	f, err := vfs.ReadOnly(fsys).Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &DamageError{ID: m.ID(), File: name, Block: -1, What: "it is missing"}
	}
	if err != nil {
		return nil, fmt.Errorf("snapshot: open %s: %w", name, err)
	}
	size, err := f.Size()
	switch {
	case err != nil:
		return nil, errors.Join(fmt.Errorf("snapshot: size of %s: %w", name, err), f.Close())
	case size != m.Parts[i].Bytes:
		return nil, errors.Join(&DamageError{ID: m.ID(), File: name, Block: -1, What: fmt.Sprintf("it has %d bytes, want %d", size, m.Parts[i].Bytes)}, f.Close())
	}
	return f, nil
}

// verifyParts reads every block of every part.
func verifyParts(ctx context.Context, fsys vfs.FS, dir string, m *Manifest) error {
	for i := range m.Parts {
		if err := verifyFile(ctx, fsys, filepath.Join(dir, partFile(i)), m, i); err != nil {
			return err
		}
	}
	return nil
}

// verifyFile reads every block of a file that has, or is to have, the content of part i.
func verifyFile(ctx context.Context, fsys vfs.FS, name string, m *Manifest, i int) (err error) {
	f, err := openFile(fsys, name, m, i)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	p, whole := &m.Parts[i], sha256.New()
	buf := make([]byte, min(BlockBytes, p.Bytes))
	for b := range p.Blocks() {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("snapshot: verify %v: %w", m.ID(), context.Cause(ctx))
		}
		piece := buf[:p.blockBytes(b)]
		if err := readBlock(f, p, b, piece); err != nil {
			return damaged(m, name, b, err)
		}
		whole.Write(piece)
	}
	if sum := sumOf(whole); sum != p.SHA256 {
		return &DamageError{ID: m.ID(), File: name, Block: -1, What: fmt.Sprintf("it has the SHA-256 %x, want %x", sum, p.SHA256)}
	}
	return nil
}

// errSum is the error about a block that is not the one that the manifest names.
type errSum struct{ have, want uint32 }

func (e errSum) Error() string {
	return fmt.Sprintf("it has the CRC32C %#08x, want %#08x", e.have, e.want)
}

// readBlock fills buf with a block of p, and checks it.
func readBlock(f io.ReaderAt, p *Part, block int64, buf []byte) error {
	if n, err := f.ReadAt(buf, block*BlockBytes); n < len(buf) {
		return err
	}
	if have := crc32.Checksum(buf, castagnoli); have != p.Sums[block] {
		return errSum{have: have, want: p.Sums[block]}
	}
	return nil
}

// damaged says that a block of a part could not be read, or is wrong.
func damaged(m *Manifest, name string, block int64, err error) error {
	d := &DamageError{ID: m.ID(), File: name, Block: block}
	if sum := (errSum{}); errors.As(err, &sum) {
		d.What = sum.Error()
	} else {
		d.What, d.Err = "it cannot be read", err
	}
	return d
}

func sumOf(h hash.Hash) [sha256.Size]byte { return [sha256.Size]byte(h.Sum(nil)) }

// sameBytes reports whether a small file has this content.
func sameBytes(fsys vfs.FS, name string, want []byte) (bool, error) {
	have, err := readSmall(fsys, name)
	var format *FormatError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &format) {
		return false, nil
	}
	return err == nil && bytes.Equal(have, want), err
}
