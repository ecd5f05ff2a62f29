package recipe

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/millrace/millrace"
)

// filesMachine is a machine whose state is in immutable files, as that of an LSM tree: a fill writes a new
// file in place of an old one. Names end with the number of the version, so a name has one content only.
type filesMachine struct {
	dir   string // of this life
	bytes int    // of each file
	names []string
	count uint64
}

// newFiles makes a machine with n files of the same size in a new directory.
func newFiles(dir string, n, bytes int) (*filesMachine, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f := &filesMachine{dir: dir, bytes: bytes, names: make([]string, n)}
	for i := range f.names {
		if err := f.write(i, 0); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// linked makes a machine with the same files in a new directory.
func (f *filesMachine) linked(dir string) (*filesMachine, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for _, name := range f.names {
		if err := os.Link(filepath.Join(f.dir, name), filepath.Join(dir, name)); err != nil {
			return nil, err
		}
	}
	return &filesMachine{dir: dir, bytes: f.bytes, names: append([]string(nil), f.names...)}, nil
}

// write writes a new file in the place of the i-th one.
func (f *filesMachine) write(i int, seed uint64) error {
	name := fmt.Sprintf("file-%d.%d", i, seed)
	out, err := os.OpenFile(filepath.Join(f.dir, name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(out, 1<<20)
	var block page
	for at := 0; at < f.bytes && err == nil; at += len(block) {
		scramble(block[:], uint64(i)<<44^uint64(at)<<8^seed)
		_, err = w.Write(block[:min(len(block), f.bytes-at)])
	}
	f.names[i] = name
	return errors.Join(err, w.Flush(), out.Close())
}

func (f *filesMachine) units() int { return len(f.names) }

// Apply implements millrace.StateMachine.
func (f *filesMachine) Apply(batch []millrace.Command[stateCommand], results []uint64) error {
	for i := range batch {
		if c := &batch[i].Value; c.kind == fillCommand {
			for u := c.first; u < c.first+c.n; u++ {
				if err := f.write(int(u%uint64(len(f.names))), c.seed); err != nil {
					return err
				}
			}
		}
		results[i] = f.count
		f.count++
	}
	return nil
}

// filesSnapshot is the files of one moment.
type filesSnapshot struct {
	dir   string
	names []string
	count uint64
}

// Snapshot implements millrace.StateMachine.
func (f *filesMachine) Snapshot() (millrace.Snapshot, error) {
	return &filesSnapshot{f.dir, append([]string(nil), f.names...), f.count}, nil
}

// Files implements millrace.FileSnapshot. No file is ever removed, so they exist until Close.
func (s *filesSnapshot) Files() (all []millrace.SnapshotFile) {
	for _, name := range s.names {
		all = append(all, millrace.SnapshotFile{Name: name, Path: filepath.Join(s.dir, name)})
	}
	return all
}

// WriteTo implements millrace.Snapshot: the count, and the names in their order.
func (s *filesSnapshot) WriteTo(_ context.Context, w io.Writer) error {
	b := binary.LittleEndian.AppendUint64(nil, s.count)
	_, err := w.Write(append(b, strings.Join(s.names, "\n")...))
	return err
}

// Close implements millrace.Snapshot.
func (*filesSnapshot) Close() error { return nil }

// Restore implements millrace.StateMachine.
func (*filesMachine) Restore(context.Context, io.Reader) error {
	return errors.New("the snapshots of this machine have files")
}

// RestoreFiles implements millrace.FileRestorer.
func (f *filesMachine) RestoreFiles(_ context.Context, r io.Reader, from millrace.SnapshotFiles) error {
	b, err := io.ReadAll(r)
	if err != nil || len(b) < 8 {
		return errors.Join(fmt.Errorf("the stream has %d bytes, want 8 and more", len(b)), err)
	}
	names := strings.Split(string(b[8:]), "\n")
	for _, name := range names {
		if err := from.Link(name, filepath.Join(f.dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	f.names, f.count = names, binary.LittleEndian.Uint64(b)
	return nil
}

func (f *filesMachine) sum() (uint32, error) {
	sum := uint32(f.count)
	for _, name := range f.names {
		b, err := os.ReadFile(filepath.Join(f.dir, name))
		if err != nil {
			return 0, err
		}
		sum = crc32.Update(sum, castagnoli, b)
	}
	return sum, nil
}
