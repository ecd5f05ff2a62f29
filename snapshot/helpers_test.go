package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

const testDir = "/groups/1/snapshots"

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func value[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func openStore(t testing.TB, disk vfs.FS) *Store {
	t.Helper()
	s, err := OpenStore(disk, testDir)
	must(t, err)
	s.pace = 3 * BlockBytes // so that small contents have syncs in their midst
	return s
}

// content is n bytes that depend on the seed only.
func content(seed uint64, n int) []byte {
	rng := rand.New(rand.NewPCG(seed, 7))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// A source is what a snapshot is made of: the naive twin keeps it in memory.
type source struct {
	id      ID
	host    []byte
	streams []piece
	files   []piece
}

type piece struct {
	kind    Kind
	name    string
	content []byte
}

func (s source) all() []piece { return append(append([]piece(nil), s.streams...), s.files...) }

func sample(index uint64) source {
	return source{
		id: ID{Index: index, Term: 2}, host: fmt.Appendf(nil, "host %d", index),
		streams: []piece{
			{KindHost, "sessions", content(index, 1000)},
			{KindMachine, "state", content(index+100, 2*BlockBytes+77)},
			{KindMachine, "empty", nil},
		},
		files: []piece{{KindFile, "sst/000007.sst", content(5, BlockBytes+1)}},
	}
}

func (s source) manifest() Manifest {
	return Manifest{
		Cluster: 11, Group: 1, Index: s.id.Index, Term: s.id.Term, Conf: raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{9}},
		Members: []Member{{ID: 1, Incarnation: [16]byte{1}}, {ID: 2}, {ID: 3}, {ID: 9}}, Host: s.host, Machine: "v1",
	}
}

// write writes the parts of s.
func (s source) write(disk vfs.FS, w *Writer) error {
	for _, p := range s.streams {
		out, err := w.Stream(p.kind, p.name)
		if err != nil {
			return err
		}
		if _, err := out.Write(p.content); err != nil {
			return err
		}
		if err := out.Close(); err != nil {
			return err
		}
	}
	for i, p := range s.files {
		name := s.machineFile(i)
		if err := createFile(disk, name, p.content); err != nil {
			return err
		}
		if _, err := w.Link(p.name, name); err != nil {
			return err
		}
	}
	return nil
}

// machineFile is where the machine has one of its files.
func (s source) machineFile(i int) string { return fmt.Sprintf("/machine/%d-%d", s.id.Index, i) }

func createFile(disk vfs.FS, name string, content []byte) (err error) {
	if err := disk.MkdirAll("/machine"); err != nil {
		return err
	}
	if err := disk.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := disk.Create(name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	return errors.Join(err, f.Close())
}

// take publishes a snapshot of s, with every step that a host takes.
func (s source) take(disk vfs.FS, store *Store) error {
	w, err := store.Create(s.id)
	if err != nil {
		return err
	}
	err = s.write(disk, w)
	if err == nil {
		err = w.SyncParts()
	}
	if err == nil {
		err = w.Publish(s.manifest())
	}
	if err != nil {
		return errors.Join(err, w.Abort())
	}
	return store.Verify(context.Background(), s.id)
}

// compare reads a published snapshot and says how it differs from s.
func (s source) compare(store *Store) error {
	r, err := store.Open(s.id)
	if err != nil {
		return err
	}
	defer r.Close()
	m := r.Manifest()
	if !bytes.Equal(m.Host, s.host) || m.Machine != "v1" || len(m.Conf.Voters) != 3 {
		return fmt.Errorf("manifest %+v", m)
	}
	labels := map[label]bool{}
	for _, p := range m.Parts {
		labels[label{p.Kind, p.Name}] = true
	}
	if len(labels) != len(s.all()) {
		return fmt.Errorf("%d streams and files, want %d", len(labels), len(s.all()))
	}
	for _, p := range s.all() {
		in, err := r.Stream(p.kind, p.name)
		if err != nil {
			return err
		}
		have, err := io.ReadAll(in)
		if err := errors.Join(err, in.Close()); err != nil {
			return err
		}
		if !bytes.Equal(have, p.content) {
			return fmt.Errorf("%v %s: %d bytes, want %d, or other ones", p.kind, p.name, len(have), len(p.content))
		}
	}
	return nil
}

// transfer sends what a receiver misses, run by run, at most n blocks.
func transfer(r *Reader, to *Receiver, n int) error {
	for n > 0 {
		missing := to.Missing(1)
		if len(missing) == 0 {
			return nil
		}
		raw, err := r.ReadBlocks(missing[0].Part, missing[0].Block, min(2, n)*BlockBytes)
		if err != nil {
			return err
		}
		if run := missing[0].Blocks * BlockBytes; int64(len(raw)) > run {
			raw = raw[:run]
		}
		if err := to.Put(missing[0].Part, missing[0].Block, raw); err != nil {
			return err
		}
		n -= int(blocksOf(int64(len(raw))))
	}
	return nil
}

// receive is every step of a receiving host.
func receive(from *Reader, store *Store) error {
	to, err := store.Receive(context.Background(), from.Manifest())
	if err != nil {
		return err
	}
	err = transfer(from, to, 1<<20)
	if err == nil {
		err = to.Finish(context.Background())
	}
	if err == nil {
		err = to.Publish()
	}
	return errors.Join(err, to.Close())
}
