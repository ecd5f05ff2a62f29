package apply

import (
	"cmp"
	"fmt"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// A group is at a version of its machine's behaviour: at the one that the last entry of kind version says, in
// the order of the log. The version is a part of the state that the commands lead to, and so of snapshots. It
// comes from there only. A program says which versions it can do, and that changes nothing of what a command
// does.
//
// A machine whose program cannot do the version of the group is halted at the entry that began it, and gets
// nothing behind that. Its member keeps its log and votes. A program that can do the version goes on from
// there. That also holds for a snapshot whose state is of such a version: the member takes it over, for its
// log, and the machine does not see it.
//
// Rejected: to let a quorum decide. The members that cannot would be one failure away from being needed.

// versions is what a queue knows of them.
type versions struct {
	// at is the version that commands have now. The lane or the turn that calls the machine writes it.
	at atomic.Pointer[entry.At]
	// had is, of a machine that has not got the state of a snapshot, the last entry that it has got, plus one;
	// 0: it has all.
	had atomic.Uint64
	// isOpen: the group is open, so that a halt can be told. refused is one that waits for that.
	isOpen  bool
	refused *outcome.HaltedError
}

// At returns the version that the group is at, as far as this member has applied its log.
func (q *Queue) At() (at entry.At) {
	if now := q.versions.at.Load(); now != nil {
		at = *now
	}
	return at
}

// Program returns which versions the program can do.
func (q *Queue) Program() statemachine.Versions {
	if m, is := q.Machine.(*Commands); is {
		return m.Options.Versions
	}
	return statemachine.Versions{}
}

// beginVersion puts an entry in force from which on commands have another version. It is called where the
// machine may be called, for an entry that is applied. An error says that this program cannot do it.
func (q *Queue) beginVersion(e *raftpb.Entry) *outcome.HaltedError {
	v, err := entry.DecodeVersion(e.Data)
	if err != nil || v.To <= q.At().Version {
		return nil
	}
	at := entry.At{Version: v.To, Since: e.Index}
	if halted := q.rejectVersion(at, e.Index); halted != nil {
		return halted
	}
	q.versions.at.Store(&at)
	if !q.rebuilding {
		q.Logger.Info("the group is at another version of its machine", "group", q.Group, "host", q.Self, "version", at.Version, "index", at.Since)
		q.member.VersionChanged()
	}
	return nil
}

// rejectVersion says why this machine gets no entry at a version, the first at from, or returns nil.
func (q *Queue) rejectVersion(at entry.At, from uint64) *outcome.HaltedError {
	can := q.Program()
	if can.Can(at.Version) {
		return nil
	}
	since := fmt.Sprintf("since entry %d", at.Since)
	if at.Since == 0 {
		since = "since it was founded"
	}
	return &outcome.HaltedError{
		Group: q.Group, First: from, Last: from, Version: at.Version, WrongVersion: true,
		Cause: fmt.Errorf("group %d is at version %d of its state machine %s, and the program of host %d can do %v", q.Group, at.Version, since, q.Self, can),
	}
}

// restoreVersion makes the version that of a snapshot at an index. If the program cannot do it, the machine
// is halted. had is the last entry that the machine has then.
func (q *Queue) restoreVersion(at entry.At, index, had uint64) {
	q.versions.at.Store(&at)
	halted := q.rejectVersion(at, cmp.Or(at.Since, index))
	if halted == nil {
		q.versions.had.Store(0)
		return
	}
	if q.versions.had.Load() == 0 {
		q.versions.had.Store(had + 1)
	}
	if q.versions.isOpen {
		q.halt(halted)
		return
	}
	q.versions.refused = halted
}

// Open says that the group is open: turns and lanes may run. A machine that cannot do the version of its
// snapshot is halted from the beginning.
func (q *Queue) Open() {
	q.versions.isOpen = true
	if halted := q.versions.refused; halted != nil {
		q.halt(halted)
	}
}

// hasWrongVersion reports whether the machine is halted because its program cannot do the version.
func (q *Queue) hasWrongVersion() bool {
	h := q.Halted()
	return h != nil && h.WrongVersion
}
