package millracetest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/millracetest"
)

// Snapshots through the typed face: a log that forgets, and machines that begin behind it.

// often is a group that keeps as little of its log as it can.
func often() millracetest.Option {
	return millracetest.WithGroup(millrace.GroupConfig{Snapshots: millrace.SnapshotPolicy{LogBytes: 2 << 10, KeepBytes: 1}})
}

// forgets proposes ones at a node until its log has forgotten all that it had before.
func (c *counters) forgets(id uint64) (proposed int64) {
	c.t.Helper()
	for last := c.Node(id).Status().LastIndex; c.Node(id).Status().FirstIndex <= last; proposed++ {
		c.propose(id, 1)
		if proposed > 100_000 {
			c.t.Fatalf("after %d commands the log of node %d still has an entry before %d: %+v", proposed, id, last, c.Node(id).Status())
		}
	}
	return proposed
}

// Nodes that lose their power begin from their snapshots, with the sessions in them: a command that was
// acknowledged before is not applied again.
func TestAllBeginFromTheirSnapshots(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		c := newCounters(t, often())
		leader := c.Leader(deadline(t))
		c.propose(leader, 1)
		c.read(leader, millrace.Linearizable)
		session := c.Node(leader).NewSession().ID()
		if _, err := c.Node(leader).Propose(deadline(t), 1000, millrace.InSession(millrace.SessionMark{Session: session, Number: 1})); err != nil {
			t.Fatal(err)
		}
		want := 1001 + c.forgets(leader)
		for _, id := range []uint64{1, 2, 3} {
			c.Kill(id)
		}
		for _, id := range []uint64{1, 2, 3} {
			c.Restart(id)
		}
		for _, id := range []uint64{1, 2, 3} {
			if n := c.read(id, millrace.Linearizable); n != want {
				t.Errorf("node %d has %d, want %d", id, n, want)
			}
			_, err := c.Node(id).Propose(deadline(t), 1000, millrace.InSession(millrace.SessionMark{Session: session, Number: 1}))
			if !errors.Is(err, millrace.ErrAlreadyApplied) {
				t.Errorf("node %d, which gets a command for the second time: %v", id, err)
			}
		}
		if n := c.read(leader, millrace.Linearizable); n != want {
			t.Errorf("after the duplicates the counter is %d, want %d", n, want)
		}
	})
}

// A node that was cut off beyond the log gets a snapshot, three times in a row, and reads go on behind it. A
// command that it was given meanwhile is not lost: it is applied once, or surely not.
func TestANodeBeyondTheLogCatchesUp(t *testing.T) {
	inBoth(t, func(t *testing.T) {
		c := newCounters(t, often())
		c.propose(c.Leader(deadline(t)), 0)
		var want int64
		for round := range 3 {
			leader := c.Leader(deadline(t))
			away := leader%3 + 1
			c.Isolate(away)
			p, err := c.Node(away).Submit(1_000_000)
			if err != nil {
				t.Fatal(err)
			}
			want += c.forgets(leader)
			c.Heal()
			want += 1_000_000
			if _, _, err := p.Wait(deadline(t)); err != nil && !errors.Is(err, millrace.ErrAlreadyApplied) {
				t.Fatalf("round %d: the command of node %d, which was away: %v\n%v", round, away, err, c.Node(leader).Explain())
			}
			if n := c.read(away, millrace.Linearizable); n != want {
				t.Fatalf("round %d: node %d has %d, want %d", round, away, n, want)
			}
			if _, ok := c.Node(away).LatestSnapshot(); !ok {
				t.Errorf("round %d: node %d has no snapshot", round, away)
			}
		}
	})
}

// shelf is a machine that keeps immutable files: one for each ten commands, with the sum after them.
type shelf struct {
	dir      string
	n, at    int64
	files    []string
	restored int

	// Of a durable one: what its last Sync has made durable.
	index, durable uint64
	syncs          int
}

func (s *shelf) Apply(batch []millrace.Command[int64], results []int64) error {
	for i := range batch {
		s.n += batch[i].Value
		results[i] = s.n
		s.index = batch[i].Index
		if s.at++; s.at%10 == 0 {
			name := fmt.Sprintf("sum-%d", s.at)
			if err := os.WriteFile(filepath.Join(s.dir, name), fmt.Append(nil, s.n), 0o600); err != nil {
				return err
			}
			s.files = append(s.files, name)
		}
	}
	return nil
}

// shelved is a snapshot of a shelf.
type shelved struct {
	millrace.Snapshot
	files []millrace.SnapshotFile
}

func (s *shelved) Files() []millrace.SnapshotFile { return s.files }

func (s *shelf) Snapshot() (millrace.Snapshot, error) {
	state := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(s.n)), uint64(s.at)), s.index)
	v := &shelved{Snapshot: millrace.BytesSnapshot(state)}
	for _, name := range s.files {
		v.files = append(v.files, millrace.SnapshotFile{Name: name, Path: filepath.Join(s.dir, name)})
	}
	return v, nil
}

func (s *shelf) Restore(context.Context, io.Reader) error {
	return errors.New("the snapshots of a shelf have files")
}

func (s *shelf) RestoreFiles(_ context.Context, r io.Reader, files millrace.SnapshotFiles) error {
	b, err := io.ReadAll(r)
	if err != nil || len(b) != 24 {
		return fmt.Errorf("%d bytes: %w", len(b), err)
	}
	for _, name := range files.Names() {
		if err := files.Link(name, filepath.Join(s.dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	s.n, s.at, s.index = int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint64(b[8:])), binary.BigEndian.Uint64(b[16:])
	s.durable, s.files = s.index, files.Names()
	s.restored++
	return nil
}

func (s *shelf) Applied() (uint64, error) { return s.durable, nil }

// Sync runs beside Apply, so this one would need a lock if it were not for the tests, which wait.
func (s *shelf) Sync() error {
	s.durable = s.index
	s.syncs++
	return nil
}

// openShelf opens a node alone with a machine.
func openShelf(t *testing.T, dir string, m millrace.Machine[int64, int64]) *millrace.Node[int64, int64] {
	t.Helper()
	n, err := millrace.Open(t.Context(), millrace.Config{
		ID: 1, Dir: dir, Members: map[uint64]string{1: "127.0.0.1:0"},
		Snapshots: millrace.SnapshotPolicy{Disabled: true, LogBytes: 4, KeepBytes: 1},
		Logger:    slog.New(slog.DiscardHandler),
	}, m)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// fill proposes ones, and takes a snapshot.
func fill(t *testing.T, n *millrace.Node[int64, int64], ones int) millrace.SnapshotInfo {
	t.Helper()
	for range ones {
		if _, err := n.Propose(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
	}
	info, err := n.TakeSnapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func closeNode(t *testing.T, n *millrace.Node[int64, int64]) {
	t.Helper()
	if err := n.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// The files of a machine are linked into its snapshots, and restored from them by name; one that did not
// change is the same file in the next snapshot.
func TestFilesOfAMachineAreLinked(t *testing.T) {
	dir := scratch.Dir(t) // links need one filesystem
	codec := millrace.Binary[int64]()
	at := func(life string) *shelf {
		s := &shelf{dir: filepath.Join(dir, life)}
		if err := os.Mkdir(s.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		return s
	}
	first := at("one")
	n := openShelf(t, filepath.Join(dir, "host"), millrace.InMemory(first, codec))
	fill(t, n, 25)
	info := fill(t, n, 10)
	if latest, ok := n.LatestSnapshot(); !ok || latest != info {
		t.Errorf("the latest snapshot is %+v, %t, want %+v", latest, ok, info)
	}
	for ctx := deadline(t); n.Status().FirstIndex == 1; runtime.Gosched() { // the next turn compacts the log
		if ctx.Err() != nil {
			t.Fatalf("behind snapshot %+v the log is not compacted: %+v", info, n.Status())
		}
	}
	for _, err := range n.Log(t.Context(), 1, 0) {
		if !errors.Is(err, outcome.ErrCompacted) {
			t.Errorf("the log from entry 1, which it has forgotten: %v", err)
		}
		break
	}
	original, err := os.Stat(filepath.Join(first.dir, "sum-10"))
	if err != nil {
		t.Fatal(err)
	}
	linked := 0
	parts, err := filepath.Glob(filepath.Join(dir, "host", "groups", "1", "snapshots", "*", "part-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range parts {
		if f, err := os.Stat(part); err == nil && os.SameFile(f, original) {
			linked++
		}
	}
	if linked == 0 {
		t.Errorf("no part of %v is the file sum-10 of the machine", parts)
	}
	closeNode(t, n)

	second := at("two")
	n = openShelf(t, filepath.Join(dir, "host"), millrace.InMemory(second, codec))
	if sum, err := n.Propose(t.Context(), 1); err != nil || sum != 36 || second.restored != 1 {
		t.Errorf("%d, %v, after %d restores, want 36", sum, err, second.restored)
	}
	closeNode(t, n)
	if b, err := os.ReadFile(filepath.Join(second.dir, "sum-30")); err != nil || string(b) != "30" {
		t.Errorf("file sum-30 is %q, %v, want 30", b, err)
	}
}

// A durable machine is synced before its log forgets anything, and is restored only if it holds less than the
// snapshot does.
func TestDurableMachinesAreSyncedAndKept(t *testing.T) {
	dir := scratch.Dir(t)
	codec := millrace.Binary[int64]()
	m := &shelf{dir: dir}
	n := openShelf(t, filepath.Join(dir, "host"), millrace.Durable(m, codec))
	fill(t, n, 25)
	if m.syncs != 1 {
		t.Errorf("for a snapshot the machine was synced %d times, want once", m.syncs)
	}
	if _, err := n.Propose(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	closeNode(t, n)

	// The power fails: the machine has what was synced, with the snapshot's index, and gets the rest of the
	// log.
	kept := &shelf{dir: dir, n: 25, at: 25, index: m.durable, durable: m.durable, files: m.files}
	n = openShelf(t, filepath.Join(dir, "host"), millrace.Durable(kept, codec))
	if sum, err := n.Propose(t.Context(), 1); err != nil || sum != 31 || kept.restored != 0 {
		t.Errorf("%d, %v, after %d restores, want 31 and none", sum, err, kept.restored)
	}
	closeNode(t, n)

	// It has lost everything: it is restored.
	lost := &shelf{dir: filepath.Join(dir, "lost")}
	if err := os.Mkdir(lost.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	n = openShelf(t, filepath.Join(dir, "host"), millrace.Durable(lost, codec))
	if sum, err := n.Propose(t.Context(), 1); err != nil || sum != 32 || lost.restored != 1 {
		t.Errorf("%d, %v, after %d restores, want 32 and one", sum, err, lost.restored)
	}
	closeNode(t, n)

	// A machine that lies about what Restore has made of it is refused.
	liar := &liar{shelf{dir: t.TempDir()}}
	_, err := millrace.Open(t.Context(), millrace.Config{ID: 1, Dir: filepath.Join(dir, "host"), Members: map[uint64]string{1: "127.0.0.1:0"}, Logger: slog.New(slog.DiscardHandler)},
		millrace.Durable(liar, codec))
	if err == nil {
		t.Error("a machine whose Applied is 0 after Restore was opened")
	} else {
		t.Log(err)
	}
}

type liar struct{ shelf }

func (*liar) Applied() (uint64, error) { return 0, nil }

// RestoreFiles restores nothing.
func (*liar) RestoreFiles(_ context.Context, r io.Reader, _ millrace.SnapshotFiles) error {
	_, err := io.Copy(io.Discard, r)
	return err
}
