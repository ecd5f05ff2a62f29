package rig

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/statemachine"
)

// machine is the state machine of one group on one host: a load.Machine, which remembers in one bit for each
// write that it has seen it, and a ballast that makes snapshots as large as the experiment wants. A host that
// starts again gets a new machine, which sees all writes again, from the log or from a snapshot.
type machine struct {
	load.Machine
	ballast int64
	engine  Engine        // nil: none
	entries atomic.Uint64 // values applied, for readers
}

func newMachine(s Setup, group int) *machine {
	m := &machine{ballast: s.StateBytes}
	if s.Groups > 1 {
		m.Share = load.Share{Every: uint32(s.Groups), First: uint32(group)}
	}
	return m
}

// Apply implements host.StateMachine.
func (m *machine) Apply(entries []statemachine.Entry) error {
	if m.engine != nil {
		if err := m.engine.Put(entries); err != nil {
			return fmt.Errorf("engine: %w", err)
		}
	}
	for i := range entries {
		m.Machine.ApplyAt(entries[i].Index, entries[i].Pos, entries[i].Data)
	}
	m.entries.Store(m.State().Entries)
	return nil
}

// snapshotter is a machine that takes snapshots. A group whose machine is none keeps its whole log.
type snapshotter struct{ *machine }

// forHost returns the machine as the host gets it.
func (m *machine) forHost(s Setup) statemachine.Machine {
	if s.Sessions {
		return host.Commands(commands{m}, statemachine.CommandOptions{})
	}
	if s.Snapshots == (host.SnapshotPolicy{}) {
		return m
	}
	return snapshotter{m}
}

// The form of a snapshot is the ballast, its length first, and then the form of load.Machine.

// Snapshot implements host.Snapshotter.
func (m snapshotter) Snapshot() (statemachine.Snapshot, error) {
	return &snapshot{m.ballast, m.AppendTo(nil)}, nil
}

type snapshot struct {
	ballast int64
	form    []byte
}

// ballastBlock is what the ballast repeats.
var ballastBlock = func() []byte {
	b := make([]byte, 1<<20)
	x := uint64(1)
	for i := 0; i < len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(b[i:], x)
	}
	return b
}()

// WriteTo implements host.Snapshot.
func (s *snapshot) WriteTo(ctx context.Context, w io.Writer) error {
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(s.ballast))); err != nil {
		return err
	}
	for left := s.ballast; left > 0 && ctx.Err() == nil; {
		n, err := w.Write(ballastBlock[:min(left, int64(len(ballastBlock)))])
		if err != nil {
			return err
		}
		left -= int64(n)
	}
	_, err := w.Write(s.form)
	return errors.Join(err, context.Cause(ctx))
}

// Close implements host.Snapshot.
func (s *snapshot) Close() error { return nil }

// Restore implements host.Snapshotter.
func (m snapshotter) Restore(ctx context.Context, r io.Reader) error {
	var length [8]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return err
	}
	if have := int64(binary.LittleEndian.Uint64(length[:])); have != m.ballast {
		return fmt.Errorf("the snapshot has a ballast of %d bytes, want %d", have, m.ballast)
	}
	block := make([]byte, len(ballastBlock))
	for left := m.ballast; left > 0 && ctx.Err() == nil; {
		n := min(left, int64(len(block)))
		if _, err := io.ReadFull(r, block[:n]); err != nil {
			return err
		}
		if !bytes.Equal(block[:n], ballastBlock[:n]) {
			return errors.New("the ballast of the snapshot is damaged")
		}
		left -= n
	}
	form, err := io.ReadAll(r)
	if err != nil || ctx.Err() != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	if err := m.Machine.Restore(form); err != nil {
		return err
	}
	m.entries.Store(m.State().Entries)
	return nil
}

// walk calls f for every file below dir.
func walk(dir string, f func(os.FileInfo)) error {
	return filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			f(info)
		}
		return err
	})
}
