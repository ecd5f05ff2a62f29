package smtest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/millrace/millrace"
)

// Snapshots with files. To the rest of the kit a snapshot is a string of bytes that may break off anywhere.
// So one with files is packed into such a string (their names and lengths, the stream, their contents), and
// unpacked for RestoreFiles: a string that has broken off gives a stream, or a file, that breaks off there.

// pack returns the bytes of a snapshot, of which the stream is written already.
func pack(snap millrace.Snapshot, stream []byte) ([]byte, error) {
	withFiles, ok := snap.(millrace.FileSnapshot)
	if !ok {
		return stream, nil
	}
	files := slices.Clone(withFiles.Files())
	slices.SortFunc(files, func(a, b millrace.SnapshotFile) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	packed := binary.AppendUvarint(nil, uint64(len(files)))
	packed = binary.AppendUvarint(packed, uint64(len(stream)))
	var contents []byte
	for i, f := range files {
		if i > 0 && files[i-1].Name == f.Name {
			return nil, fmt.Errorf("Files of the snapshot has the name %q twice", f.Name)
		}
		b, err := os.ReadFile(f.Path)
		if err != nil {
			return nil, fmt.Errorf("file %q of the snapshot, which must exist until Close: %w", f.Name, err)
		}
		packed = binary.AppendUvarint(packed, uint64(len(f.Name)))
		packed = append(packed, f.Name...)
		packed = binary.AppendUvarint(packed, uint64(len(b)))
		contents = append(contents, b...)
	}
	return slices.Concat(packed, stream, contents), nil
}

// restore calls Restore or RestoreFiles with what pack has packed.
func restore[C, R any](sm millrace.StateMachine[C, R], from io.Reader) error {
	withFiles, ok := sm.(millrace.FileRestorer)
	if !ok {
		return sm.Restore(context.Background(), from)
	}
	packed, broken := io.ReadAll(from)
	u := &unpacked{broken: broken, contents: map[string][]byte{}}
	stream, err := u.parse(packed)
	if err != nil {
		return err
	}
	return withFiles.RestoreFiles(context.Background(), u.reader(stream), u)
}

// unpacked implements millrace.SnapshotFiles.
type unpacked struct {
	broken   error // at the end of what is there; nil: all is
	names    []string
	contents map[string][]byte
	lengths  map[string]int // they were longer before it broke off
	stream   int
}

// parse takes a packed snapshot apart. If it breaks off before the stream, its error is returned.
func (u *unpacked) parse(packed []byte) (stream []byte, err error) {
	r := bytes.NewReader(packed)
	number := func() int {
		n, e := binary.ReadUvarint(r)
		err = errors.Join(err, e)
		return int(n)
	}
	files := number()
	u.stream, u.lengths = number(), map[string]int{}
	for range files {
		name := make([]byte, min(number(), r.Len()))
		_, e := io.ReadFull(r, name)
		if err = errors.Join(err, e); err != nil {
			break
		}
		u.names = append(u.names, string(name))
		u.lengths[string(name)] = number()
	}
	if err != nil {
		return nil, errors.Join(u.broken, err)
	}
	take := func(n int) []byte {
		b := make([]byte, min(n, r.Len()))
		_, _ = r.Read(b)
		return b
	}
	stream = take(u.stream)
	for _, name := range u.names {
		u.contents[name] = take(u.lengths[name])
	}
	return stream, nil
}

// reader reads the stream.
func (u *unpacked) reader(stream []byte) io.Reader { return u.part(stream, u.stream) }

func (u *unpacked) part(b []byte, whole int) io.Reader {
	if len(b) < whole {
		return io.MultiReader(reader(b), &brokenReader{u.broken})
	}
	return reader(b)
}

// Names implements millrace.SnapshotFiles.
func (u *unpacked) Names() []string { return slices.Clone(u.names) }

// Open implements millrace.SnapshotFiles.
func (u *unpacked) Open(name string) (io.ReadCloser, error) {
	b, ok := u.contents[name]
	if !ok {
		return nil, fmt.Errorf("the snapshot has no file %q; it has %q", name, u.names)
	}
	return io.NopCloser(u.part(b, u.lengths[name])), nil
}

// Link implements millrace.SnapshotFiles. It makes a copy, which nothing can tell from a link to a file that
// never changes.
func (u *unpacked) Link(name, path string) (err error) {
	from, err := u.Open(name)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(from)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}
