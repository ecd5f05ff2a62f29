// Package outcome says how what a program asks of a group ends: with a receipt or an error. It is values
// only. Package host and its rooms return them; nothing here waits, locks or starts anything.
//
// Every proposal ends in exactly one of three ways:
//   - with a Receipt;
//   - with an error that says that the command was not committed and never will be;
//   - with ErrIndeterminate.
package outcome

import (
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// Position is where a command is in the log: an entry, and a place in it.
type Position = raftpb.Position

// Receipt is the position of a committed command in the log and, for a Call, when it passed each step. The
// times are read once for each batch of commands, not for each command. So they cost little and are as
// exact as a turn of the group is short.
type Receipt struct {
	Index, Term uint64
	Pos         uint32 // among the commands with this Index, from 0

	// Times on the monotonic clock of this host (Group.Now), which begins anywhere: only differences count. 0
	// means not known. Group.Propose and Submit know none.
	Queued   time.Duration // Group.Call took the first command of its batch
	Appended time.Duration // a turn put it into the log of this host, which led
	// Replicated is when this host, which led, first passed an append with the command to the transport for
	// another member. Whether it arrived is not known. A group of one member has none.
	Replicated time.Duration
	Committed  time.Duration // this host learned that a quorum holds it durably
	Applied    time.Duration // the state machine of this host gets it; known with the result, not before
	// By is the member whose acknowledgement completed the quorum, as this host saw it as the leader. It is
	// its own id if its own disk came last. 0 if this host did not lead then.
	By uint64
}

// ReadAt is what a read may rely on.
type ReadAt struct {
	// Index is applied on this host: its state machine has seen the log through Index, or further.
	Index uint64
	// Age says how old the state may be: it includes everything that was acknowledged, by any member, until
	// Age before the read began. It is 0 for a linearizable read.
	Age time.Duration
}

// Caller learns the outcome of a Call. The host's workers call its methods, so they must not block and must
// not call the group. If a method panics, the Caller does not learn the outcome of its command; the panic
// is logged. A method that ends its goroutine (runtime.Goexit) halts the machine of this member, or stops
// the group here.
type Caller interface {
	// Committed reports, once at most, that a quorum holds the command durably. The state machine of this
	// host may have applied it before.
	Committed(Receipt)
	// Failed reports the outcome of a command that gets no result, as an error like those of Group.Propose.
	// It is the last call. ErrNoResult comes after Committed, and what the table of objects says of a command
	// that was not applied may (object.ErrUnknown, ErrNotHeld, ErrRefused); all others come instead of it.
	Failed(error)
	// Duplicate reports that the command was applied before, under the same number of its session, and its
	// first result if that was kept. It is the only call. A call without a session gets a number of the
	// group's own session when it is sent to another host. It learns here that its command is in a snapshot
	// which its member has installed.
	Duplicate(r Receipt, result []byte, kept bool)
}
