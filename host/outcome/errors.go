package outcome

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/wal"
)

// The outcomes of a command.
var (
	// ErrNotLeader: this host does not lead, so it did not take the command. NotLeaderError names the leader.
	ErrNotLeader = errors.New("millrace: not the leader")
	// ErrOverloaded: the queue of proposals is full, so the command was not taken. Try again later.
	ErrOverloaded = errors.New("millrace: too many proposals are waiting")
	// ErrCompletionsFull: as many commands and reads as the Completions hold are under way, or have outcomes
	// that are not taken. This one was not taken. Take outcomes first.
	ErrCompletionsFull = errors.New("millrace: the Completions are full; take outcomes first")
	// ErrTooLarge: the command is larger than GroupConfig.MaxCommandBytes, and was not taken.
	ErrTooLarge = errors.New("millrace: command is too large")
	// ErrEmpty: the command has no bytes and was not taken. (Raft's own entries are empty.)
	ErrEmpty = errors.New("millrace: command is empty")
	// ErrDropped: another entry was committed in its place. The command was not committed and never will be.
	ErrDropped = errors.New("millrace: another leader's proposal took the place of this one")
	// ErrAmnesia: this host's log may lack entries or votes that a group has promised, and the group's
	// other members are no quorum that could say what is missing. This happens when the machine lost power
	// in an unsafe mode of durability, or the log was repaired. The group is not opened. The error that
	// wraps this one says what to do.
	ErrAmnesia = errors.New("millrace: the host may have forgotten what it promised")
	// ErrStopped: the host was closed or has failed, and the command was not taken.
	ErrStopped = errors.New("millrace: host has stopped")
	// ErrMemberRemoved: this host was removed from the group (Group.Execute), and its member has stopped.
	ErrMemberRemoved = errors.New("millrace: this host was removed from the group")
	// ErrRemoved: the group was removed from this host, and its id is never reused.
	ErrRemoved = errors.New("millrace: group was removed from this host")
	// ErrSessionExpired: the session of the command is forgotten, or may be, because it was idle for too
	// long. The command was not applied under its number now and never will be; whether it was before is not
	// known.
	ErrSessionExpired = errors.New("millrace: the session has expired")
	// ErrDiverged: the state of this member was not that of a majority, so its group stopped here
	// (CommandOptions.StopDiverged).
	ErrDiverged = errors.New("millrace: this member has diverged from the majority")
	// ErrNoResult: the command is committed, and this host has stopped, or its machine has halted, before
	// it had the result.
	ErrNoResult = errors.New("millrace: the command is committed, but its result is not known here")
	// ErrIndeterminate: the wait ended, with its context or with the host, after the command was taken. The
	// command may have been committed, or may be committed later.
	ErrIndeterminate = errors.New("millrace: outcome unknown: the command may have been committed")
)

// MayHaveCommitted reports whether a command that failed with err may have been committed, or may be
// committed later.
func MayHaveCommitted(err error) bool {
	return errors.Is(err, ErrIndeterminate) || errors.Is(err, ErrNoResult) || errors.Is(err, ErrSessionExpired)
}

// WithCause returns an error that wraps err and its cause, or err if there is no other cause, or no error.
func WithCause(err, cause error) error {
	if err == nil || cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// Why a call may have ended with its context. Errors of a context wrap the one that was true at the end,
// beside the error of the context.
var (
	// ErrNoLeader: no leader is known, although a quorum of the voters is heard; an election takes up to two
	// election timeouts.
	ErrNoLeader = errors.New("millrace: no leader is known")
	// ErrNoQuorum: too few voters are heard to commit anything, or to elect a leader.
	ErrNoQuorum = errors.New("millrace: too few voters are heard")
	// ErrDiskFull: the disk of this host refuses entries.
	ErrDiskFull = wal.ErrDiskFull
)

// ErrSessionFull: too many commands of the session wait for an answer, so this one was not applied. A copy
// of it may be applied later. Say which are answered (session.Mark.Low).
var ErrSessionFull = errors.New("millrace: too many commands of the session are unanswered")

// ErrCompacted: the log of this host does not have these entries any more.
var ErrCompacted = errors.New("millrace: the entries are compacted")

// ErrNoSnapshots: the state machine of the group cannot be written as a snapshot.
var ErrNoSnapshots = errors.New("millrace: the state machine takes no snapshots")

// ErrNoObjects: the group was opened without objects.
var ErrNoObjects = errors.New("millrace: the group has no objects; open it with CommandOptions.Objects on all members")

// ErrObjectSpace: the object would take of the space that objects leave for the log
// (ObjectOptions.ReserveBytes).
var ErrObjectSpace = errors.New("millrace: no space for the object")

// ErrNoFlightRecorder is returned by DumpFlight and WriteFlight if Config.FlightRecorder is not set.
var ErrNoFlightRecorder = errors.New("millrace: this host has no flight recorder; set Config.FlightRecorder.Bytes and start it again")
