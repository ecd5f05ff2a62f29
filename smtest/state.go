package smtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/millrace/millrace"
)

// state is what a kit can see of a machine's state without knowing the machine: its digest, if it has one,
// and its snapshot. Two equal states may have different snapshots (a map is written in any order), so
// snapshots count only if a machine writes the same bytes each time. If it has a digest, its files do not
// count either: those of an LSM tree depend on when it was flushed.
type state struct {
	digest    uint64
	hasDigest bool
	form      [sha256.Size]byte
	canonical bool // the snapshot of this state is always form
	bytes     []byte
	timer     string // the first one, as a text; "": the machine has no timers
}

// maxForms is how many snapshots of one state are compared with each other. A map of two elements, which Go
// seldom walks from its second, must not be taken for something ordered.
const (
	maxForms      = 24
	maxFormsBytes = 1 << 20 // in all; at least two
)

func stateOf[C, R any](m millrace.Machine[C, R]) (state, error) {
	var s state
	if s.digest, s.hasDigest = m.Sum(); s.hasDigest {
		if again, _ := m.Sum(); again != s.digest {
			return s, fmt.Errorf("the digest is %#x and then %#x, for the same state", s.digest, again)
		}
	}
	if t, _ := m.Clock(); t != nil {
		s.timer = "no timer"
		if at, ok := t.Next(); ok {
			s.timer = fmt.Sprintf("a first timer at %v", at)
		}
	}
	_, hasFiles := m.StateMachine().(millrace.FileRestorer)
	first, err := snapshotOf(m.StateMachine())
	if err != nil {
		return s, err
	}
	s.bytes, s.form, s.canonical = first, sha256.Sum256(first), !(s.hasDigest && hasFiles)
	for n := 1; n < maxForms && (n < 2 || n*len(first) < maxFormsBytes) && s.canonical; n++ {
		b, err := snapshotOf(m.StateMachine())
		if err != nil {
			return s, err
		}
		s.canonical = bytes.Equal(b, first)
	}
	return s, nil
}

// snapshotOf returns the bytes of a snapshot.
func snapshotOf[C, R any](sm millrace.StateMachine[C, R]) ([]byte, error) {
	snap, err := takeSnapshot(sm)
	if err != nil {
		return nil, err
	}
	return writeSnapshot(snap)
}

func takeSnapshot[C, R any](sm millrace.StateMachine[C, R]) (millrace.Snapshot, error) {
	snap, err := sm.Snapshot()
	switch {
	case err != nil:
		return nil, fmt.Errorf("Snapshot returns an error: %w", err)
	case snap == nil:
		return nil, errors.New("Snapshot returns nil without an error; an empty state has a snapshot too")
	}
	if _, ok := snap.(millrace.FileSnapshot); ok {
		if _, ok := sm.(millrace.FileRestorer); !ok {
			return nil, errors.Join(fmt.Errorf("Snapshot returns a FileSnapshot, and %T has no method RestoreFiles (FileRestorer)", sm), snap.Close())
		}
	}
	return snap, nil
}

func writeSnapshot(snap millrace.Snapshot) ([]byte, error) {
	var b bytes.Buffer
	if err := snap.WriteTo(context.Background(), &b); err != nil {
		return nil, errors.Join(fmt.Errorf("WriteTo of the snapshot returns an error: %w", err), snap.Close())
	}
	packed, err := pack(snap, b.Bytes())
	if err != nil {
		return nil, errors.Join(err, snap.Close())
	}
	if err := snap.Close(); err != nil {
		return nil, fmt.Errorf("Close of the snapshot returns an error: %w", err)
	}
	return packed, nil
}

// differs says how two states differ, or returns nil.
func (s state) differs(other state) error {
	switch {
	case s.hasDigest && other.hasDigest && s.digest != other.digest:
		return fmt.Errorf("the digests of the states are %#x and %#x", s.digest, other.digest)
	case s.timer != other.timer:
		return fmt.Errorf("the states have %s and %s", s.timer, other.timer)
	case s.canonical && other.canonical && s.form != other.form:
		return fmt.Errorf("the states differ: their snapshots are %s and %s", showBytes(s.bytes, other.bytes), showBytes(other.bytes, s.bytes))
	}
	return nil
}

// showBytes shows the part of b that differs from another.
func showBytes(b, other []byte) string {
	at := 0
	for at < len(b) && at < len(other) && b[at] == other[at] {
		at++
	}
	from, to := max(0, at-30), min(len(b), at+50)
	return fmt.Sprintf("%q (%d bytes, from byte %d)", b[from:to], len(b), from)
}
