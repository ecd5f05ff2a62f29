package host

import (
	"errors"
	"fmt"
)

// Every proposal ends in exactly one of three ways:
//   - with a receipt;
//   - with an error that says that the command was not committed and never will be;
//   - with ErrIndeterminate.
var (
	// ErrNotLeader: this host does not lead, so it did not take the command. NotLeaderError names the leader.
	ErrNotLeader = errors.New("millrace: not the leader")
	// ErrOverloaded: the queue of proposals is full, so the command was not taken. Try again later.
	ErrOverloaded = errors.New("millrace: too many proposals are waiting")
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

// NotLeaderError names the leader, as far as this host knows. errors.Is finds ErrNotLeader in it.
type NotLeaderError struct {
	Leader     uint64 // 0: not known
	Addr       string // of the leader, in Config.Members
	ClientAddr string // of the leader, in Config.ClientAddrs; "": none is given there
}

func (e *NotLeaderError) Error() string {
	switch {
	case e.Leader == 0:
		return ErrNotLeader.Error() + "; no leader is known at the moment"
	case e.ClientAddr != "":
		return fmt.Sprintf("%v; host %d leads, and serves clients at %s", ErrNotLeader, e.Leader, e.ClientAddr)
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
