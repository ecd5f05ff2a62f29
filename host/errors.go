package host

import (
	"errors"
	"fmt"
)

// Every proposal ends in exactly one of three ways: with a receipt; with an error after which it has surely not been
// committed and never will be; or with ErrIndeterminate.
var (
	// ErrNotLeader: this host does not lead, so the command was not taken. See NotLeaderError for who may.
	ErrNotLeader = errors.New("millrace: not the leader")
	// ErrOverloaded: the queue of proposals is full, so the command was not taken. Try again later.
	ErrOverloaded = errors.New("millrace: too many proposals are waiting")
	// ErrTooLarge: the command is larger than Config.MaxCommandBytes, and was not taken.
	ErrTooLarge = errors.New("millrace: command is too large")
	// ErrEmpty: the command has no bytes, and was not taken. (Raft's own entries are empty.)
	ErrEmpty = errors.New("millrace: command is empty")
	// ErrDropped: another command was committed in its place. It has surely not been committed.
	ErrDropped = errors.New("millrace: proposal was overtaken by another leader's")
	// ErrAmnesia: the log of this host may lack what the host said it had: the machine lost power in an unsafe mode of
	// durability, or the log was repaired. It must not vote, so it is not started; the error that wraps this one says what to do.
	ErrAmnesia = errors.New("millrace: the host may have forgotten what it promised")
	// ErrStopped: the host was closed or has failed, and the command was not taken.
	ErrStopped = errors.New("millrace: host has stopped")
	// ErrIndeterminate: the wait ended — the context, or the host — after the command was taken. It may have been
	// committed, or may yet be.
	ErrIndeterminate = errors.New("millrace: outcome unknown: the command may have been committed")
)

// MayHaveCommitted reports whether a command that failed with err may have been committed nevertheless.
func MayHaveCommitted(err error) bool { return errors.Is(err, ErrIndeterminate) }

// NotLeaderError tells who leads, as far as this host knows. It is an ErrNotLeader.
type NotLeaderError struct {
	Leader uint64 // 0: not known
}

func (e *NotLeaderError) Error() string {
	if e.Leader == 0 {
		return ErrNotLeader.Error() + "; no leader is known at the moment"
	}
	return fmt.Sprintf("%v; host %d leads", ErrNotLeader, e.Leader)
}

// Is makes errors.Is(err, ErrNotLeader) hold.
func (e *NotLeaderError) Is(target error) bool { return target == ErrNotLeader }

// wrap returns err with its cause, unless the cause is err already.
func wrap(err, cause error) error {
	if cause == nil || errors.Is(cause, err) {
		return err
	}
	return fmt.Errorf("%w: %w", err, cause)
}
