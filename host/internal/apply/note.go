package apply

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/vfs"
)

// machine.json in the directory of a group says what the next start must know of a machine that has halted,
// and neither log nor snapshots have:
//
//	first, last   one of these commands has halted the machine, and it is not known which: they are applied one
//	              at a time
//	committed     the log was committed through here: an entry that skips a command and is before it counts at
//	              once (the log tells its commit index later than it is known)
//	passed        commands that a machine with its state on disk was not given: whether it has applied them,
//	              its Applied does not say
//
// A note that is lost costs a start more, or a member that must be replaced, and never a wrong state.
const (
	NoteFile    = "machine.json"
	noteVersion = 1
)

type noteText struct {
	Version   int               `json:"version"`
	First     uint64            `json:"first,omitempty"`
	Last      uint64            `json:"last,omitempty"`
	Committed uint64            `json:"committed,omitempty"`
	Passed    []raftpb.Position `json:"passed,omitempty"`
}

// OpenNote reads the note when the group is opened, behind a snapshot, and returns through where the log is
// surely committed.
func (q *Queue) OpenNote(snapshot, committed uint64) (uint64, error) {
	path := filepath.Join(q.Dir, NoteFile)
	found, err := identity.ReadFile(q.FS, path, &q.note)
	switch {
	case err != nil:
		return 0, err
	case !found || q.InMemory:
		q.note = noteText{}
		return committed, nil
	case q.note.Version != noteVersion:
		return 0, fmt.Errorf("millrace: %s has version %d, this program supports only version %d; start the program that wrote it", path, q.note.Version, noteVersion)
	}
	if q.isOnDisk() {
		for _, at := range q.note.Passed {
			if at.Index > snapshot && !slices.Contains(q.passed, at) {
				q.passed = append(q.passed, at)
			}
		}
		slices.SortFunc(q.passed, raftpb.Position.Compare)
	}
	return max(committed, min(q.note.Committed, q.Log.LastIndex())), nil
}

// isSuspect reports whether a command must be applied alone.
func (q *Queue) isSuspect(index uint64) bool {
	return q.note.First <= index && index <= q.note.Last
}

func isKnown(h *outcome.HaltedError) bool {
	_, known := h.Command()
	return known
}

// writeNote writes what is known of a halt, once. It is called by a lane. Without a descriptor it is tried
// again. If it fails otherwise, the next start knows less.
func (q *Queue) writeNote() {
	next := q.note
	if h := q.Halted(); h != nil && !isKnown(h) {
		next.First, next.Last = h.First, h.Last
	}
	known := q.Skips.Known()
	next.Committed = max(next.Committed, known)
	if err := q.storeNote(next); vfs.IsShort(err) {
		q.retry(err)
		return
	} else if err != nil {
		q.Logger.Warn("what halted the state machine is not noted for the next start", "group", q.Group, "host", q.Self, "err", err)
	}
	if q.Skips.Noted.Swap(known) < known {
		q.member.SkipNoted() // a caller may start this host again as soon as it is told
	}
}

// recordPassed notes durably that the machine is not given a command.
func (q *Queue) recordPassed(at raftpb.Position) error {
	if slices.Contains(q.note.Passed, at) {
		return nil
	}
	next := q.note
	next.Passed = append(slices.Clone(next.Passed), at)
	next.Passed = next.Passed[max(0, len(next.Passed)-entry.MaxSkips):]
	return q.storeNote(next)
}

func (q *Queue) storeNote(next noteText) error {
	next.Version = noteVersion
	same := !q.noteFailed && next.First == q.note.First && next.Last == q.note.Last && next.Committed == q.note.Committed && slices.Equal(next.Passed, q.note.Passed)
	was := q.note
	if q.note = next; same || q.InMemory {
		return nil
	}
	err := q.FS.MkdirAll(q.Dir)
	if err == nil {
		err = identity.WriteFile(q.FS, q.Dir, NoteFile, next)
	}
	if q.noteFailed = err != nil; err != nil {
		q.note.Committed, q.note.Passed = was.Committed, was.Passed // it is tried again
		return errors.Join(fmt.Errorf("millrace: note what halted the state machine of group %d", q.Group), err)
	}
	return nil
}
