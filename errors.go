package millrace

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host"
)

// What Propose, Submit, Wait and the reads return. errors.Is finds them in the errors, which say more.
// MayHaveCommitted is true for ErrIndeterminate and ErrAlreadyApplied; all others mean that the command was
// not applied and never will be.
var (
	// ErrNotLeader: this host does not lead, and the call was made with Here. errors.As finds a NotLeaderError
	// with the leader's addresses in it: send the client there, or leave Here out.
	ErrNotLeader = host.ErrNotLeader
	// ErrOverloaded: too many commands are under way, and Submit does not wait. Submit it again after
	// RetryAfter, or use Propose, which waits.
	ErrOverloaded = host.ErrOverloaded
	// ErrTooLarge: the encoded command is larger than Config.MaxCommandBytes. Cut it, or raise the bound.
	ErrTooLarge = host.ErrTooLarge
	// ErrDropped: another leader's entry took the place of the command. Propose it again.
	ErrDropped = host.ErrDropped
	// ErrStopped: the node was closed or has failed. Node.Err says which; after a failure close the node, do
	// what the error says, and open it again.
	ErrStopped = host.ErrStopped
	// ErrRemoved: the group was removed from this host and its id is not reused. Use another member.
	ErrRemoved = host.ErrRemoved
	// ErrAmnesia: the log may lack what this host has promised, so Open refuses. The error says which command
	// shows what is missing; the other members continue without this one.
	ErrAmnesia = host.ErrAmnesia
	// ErrIndeterminate: the wait ended after the command was on its way. It may be applied, now or later. Read
	// the state before you propose it again.
	ErrIndeterminate = host.ErrIndeterminate
	// ErrAlreadyApplied: the command was applied once, earlier, and its result is not kept any more. Do not
	// propose it again; read the state. errors.As finds an AlreadyAppliedError with its index.
	ErrAlreadyApplied = errors.New("millrace: the command was applied before, and its result is not kept any more")
)

// MayHaveCommitted reports whether a command that failed with err may have been applied, or may be applied
// later.
func MayHaveCommitted(err error) bool {
	return host.MayHaveCommitted(err) || errors.Is(err, ErrAlreadyApplied)
}

// NotLeaderError names the leader, as far as this host knows. errors.Is finds ErrNotLeader in it.
type NotLeaderError = host.NotLeaderError

// AlreadyAppliedError says where the command was applied. errors.Is finds ErrAlreadyApplied in it.
type AlreadyAppliedError struct{ Receipt Receipt }

func (e *AlreadyAppliedError) Error() string {
	return fmt.Sprintf("%v: it is entry %d of term %d", ErrAlreadyApplied, e.Receipt.Index, e.Receipt.Term)
}

// Is makes errors.Is(err, ErrAlreadyApplied) hold.
func (e *AlreadyAppliedError) Is(target error) bool { return target == ErrAlreadyApplied }

func isOverloaded(err error) bool { return errors.Is(err, ErrOverloaded) }
