package outcome

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
)

// ErrMachineHalted: the state machine of this member could not apply a committed command, so this member
// refuses commands and reads. Its group goes on without its machine. errors.As finds a HaltedError.
var ErrMachineHalted = errors.New("millrace: the state machine of this member is halted")

// HaltedError says at which command a state machine is halted. errors.Is finds ErrMachineHalted in it.
type HaltedError struct {
	Group uint64
	// First and Last are the commands of which one has halted the machine. They are equal if it is known.
	First, Last uint64
	// FirstPos and LastPos are their places among the commands with that index.
	FirstPos, LastPos uint32
	// Undivided: a new start cannot find the command. All of them share an entry, and a machine on disk gets
	// them in one call.
	Undivided bool
	// Cause is what the machine has said.
	Cause error
	// Skipped is the entry that skips the command, if the group has decided that (Group.SkipCommand); 0:
	// none.
	Skipped uint64
	// Held is the entry for which the machine waits in front of the command: the group decides whether it is
	// skipped. The machine was not called with it, and goes on by itself. 0: it does not wait.
	Held uint64

	// WrongVersion: the group is at Version of its machine, and the program of this member cannot do it
	// (CommandOptions.Versions). First is the entry that began it.
	Version      uint32
	WrongVersion bool

	Stack []byte // of a panic
	Final bool   // no entry of the log helps: the member must be replaced
}

func (e *HaltedError) Error() string {
	return fmt.Sprintf("%v: group %d is halted at %s: %v%s", ErrMachineHalted, e.Group, e.At(), e.Cause, e.Advice())
}

// At names the command.
func (e *HaltedError) At() string {
	if e.WrongVersion {
		return fmt.Sprintf("entry %d", e.First)
	}
	first, last := raftpb.Position{Index: e.First, Pos: e.FirstPos}, raftpb.Position{Index: e.Last, Pos: e.LastPos}
	if first == last {
		return fmt.Sprintf("command %v", first)
	}
	return fmt.Sprintf("one of the commands %v to %v", first, last)
}

// Command returns the command that has halted the machine, if it is known which.
func (e *HaltedError) Command() (at raftpb.Position, known bool) {
	at = raftpb.Position{Index: e.First, Pos: e.FirstPos}
	return at, at == raftpb.Position{Index: e.Last, Pos: e.LastPos}
}

// Advice says what to do, if that is known, beginning with a semicolon.
func (e *HaltedError) Advice() string {
	switch _, known := e.Command(); {
	case e.Final:
		return ""
	case e.Held > 0:
		return "; it goes on by itself when that is decided"
	case e.WrongVersion:
		return fmt.Sprintf("; start this host with a program that can do version %d", e.Version)
	case e.Skipped > 0:
		return fmt.Sprintf("; entry %d skips it: start this host again", e.Skipped)
	case e.Undivided:
		return "; they are one entry, which a machine on disk gets in one call: read the error to learn which, or return a CommandError"
	case !known:
		return "; start this host again to learn which"
	}
	return ""
}

// MayBe reports whether the command at a position is the only one that can have halted the machine. If no
// start can tell, it is each of them (Undivided).
func (e *HaltedError) MayBe(at raftpb.Position) bool {
	first, known := e.Command()
	return known && at == first || e.Undivided && first.Compare(at) <= 0 && at.Compare(raftpb.Position{Index: e.Last, Pos: e.LastPos}) <= 0
}

// Unwrap returns the cause.
func (e *HaltedError) Unwrap() error { return e.Cause }

// Is makes errors.Is(err, ErrMachineHalted) hold.
func (e *HaltedError) Is(target error) bool { return target == ErrMachineHalted }

// CommandError is what a CommandMachine may return from Apply if it knows which command of the batch it
// cannot apply. It has applied the commands before it and, of this one, nothing.
type CommandError struct {
	Index uint64
	Pos   uint32
	Err   error
}

func (e *CommandError) Error() string { return e.Err.Error() }

// Unwrap returns Err.
func (e *CommandError) Unwrap() error { return e.Err }

// ErrSkipped: the members were told to skip the command (Group.SkipCommand), because machines could not apply
// it. It was not applied and never will be.
var ErrSkipped = errors.New("millrace: the command was skipped on all members, and has no effect")
