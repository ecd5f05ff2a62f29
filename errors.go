package millrace

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/outcome"
)

// What Propose, Submit, Wait and the reads return. errors.Is finds them in the errors, which say more.
// MayHaveCommitted is true for ErrIndeterminate, ErrNoResult, ErrAlreadyApplied, ErrSessionExpired and
// ErrSessionFull; all others mean that the command was not applied and never will be. An error that wraps
// an error of a context says what was missing when the context ended. errors.Is finds ErrNotFounded,
// ErrNoQuorum, ErrNoLeader or ErrDiskFull in it. It finds ErrIndeterminate as well if the command may have
// been committed.
var (
	// ErrNotLeader: this host does not lead, and the call was made with IfLeader. A NotLeaderError, which
	// errors.As finds, has the leader's addresses. Send the client there, or leave IfLeader out.
	ErrNotLeader = outcome.ErrNotLeader
	// ErrOverloaded: too many commands or reads are under way. Submit it again after RetryAfter, or use
	// Propose, which waits; it refuses only if too many others wait already.
	ErrOverloaded = outcome.ErrOverloaded
	// ErrCompletionsFull: as many commands and reads as the Completions hold are under way, or have outcomes
	// that are not taken. Take outcomes, and hand in the rest.
	ErrCompletionsFull = outcome.ErrCompletionsFull
	// ErrTooLarge: the encoded command is larger than Config.MaxCommandBytes. Cut it, or raise the bound.
	ErrTooLarge = outcome.ErrTooLarge
	// ErrDropped: another leader's entry took the place of a command that was proposed with IfLeader. Propose
	// it again. (Without IfLeader that is done by itself.)
	ErrDropped = outcome.ErrDropped
	// ErrStopped: the node was closed or has failed. Node.Err says which; after a failure close the node, do
	// what the error says, and open it again.
	ErrStopped = outcome.ErrStopped
	// ErrRemoved: the group was removed from this host and its id is not reused. Use another member.
	ErrRemoved = outcome.ErrRemoved
	// ErrNotFounded: the group has never taken a command, because a founding member has not come yet, or this
	// host waits to be added. The error names the hosts. Start every member once.
	ErrNotFounded = outcome.ErrNotFounded
	// ErrNoQuorum: the wait has ended while this host heard too few voters to commit anything. The error
	// names the hosts that were heard. Start the members that are down, or mend the network.
	ErrNoQuorum = outcome.ErrNoQuorum
	// ErrNoLeader: the wait has ended while this host heard a quorum of the voters and knew no leader. An
	// election takes up to two election timeouts. Where it lasts, hosts do not hear each other in both
	// directions.
	ErrNoLeader = outcome.ErrNoLeader
	// ErrDiskFull: the wait has ended while the disk of this host refused entries. Make room; the host goes
	// on by itself.
	ErrDiskFull = outcome.ErrDiskFull
	// ErrAmnesia: the log may lack what this host has promised, and the other members are no quorum that
	// could say what is missing, so Open refuses. The error names the command that shows what is missing,
	// and the command that accepts the loss.
	ErrAmnesia = outcome.ErrAmnesia
	// ErrDiverged: Node.Err of a member whose commands, results or state differ from those of the majority
	// (Machine.StopDiverged). The error says where. Find out why before the member is opened again.
	ErrDiverged = outcome.ErrDiverged
	// ErrIndeterminate: the wait ended after the command was on its way. It may be applied, now or later.
	// Read the state before you propose it again.
	ErrIndeterminate = outcome.ErrIndeterminate
	// ErrMachineHalted: the state machine of this member could not apply a committed command, so it takes
	// no commands and serves no reads. errors.As finds a HaltedError, which names the command. Use another
	// member; if all are halted, Node.SkipCommand leads past it.
	ErrMachineHalted = outcome.ErrMachineHalted
	// ErrSkipped: machines could not apply the command, and all members were told to skip it
	// (Node.SkipCommand). It has no effect.
	ErrSkipped = outcome.ErrSkipped
	// ErrNoResult: the command is committed, and this host has stopped, or its machine has halted, before it
	// had the result. Do not propose it again; read the state on another member.
	ErrNoResult = outcome.ErrNoResult
	// ErrAlreadyApplied: the command was applied once, earlier, and its result is not kept any more. Do not
	// propose it again; read the state. errors.As finds an AlreadyAppliedError with its index.
	ErrAlreadyApplied = errors.New("millrace: the command was applied before, and its result is not kept any more")
	// ErrSessionExpired: the command is in a session of yours that was idle for too long and is forgotten. It
	// is not applied under this number; whether it was before is not known. Read the state and draw a new
	// session.
	ErrSessionExpired = outcome.ErrSessionExpired
	// ErrSessionFull: too many numbers of a session of yours are unanswered, as its lowest number
	// (InSession) says. The command was not applied; a copy of it may be applied later. Send it again with
	// a higher lowest number.
	ErrSessionFull = outcome.ErrSessionFull
	// ErrCompacted: the log of this host has forgotten commands of the range that Node.Log was asked for.
	// Status.FirstIndex is the first that it has.
	ErrCompacted = outcome.ErrCompacted
	// ErrMembersUnchanged: Plan, Execute, NewJoinToken, Upgrade or SkipCommand was refused, and nothing is
	// changed. Reasons are another plan under way, a node that was not heard, an address of another member, a
	// program that cannot do a version, or no quorum left. The error says which.
	ErrMembersUnchanged = outcome.ErrMembersUnchanged
	// ErrPlanCancelled: the plan was cancelled before its last stage. What was in force by then stays.
	ErrPlanCancelled = outcome.ErrPlanCancelled
	// ErrReentrant: a method that waits, or that proposes, was called by the state machine, or by the
	// function of ViewExclusive. It would wait for itself, and a proposal in Apply would be made again by
	// each member and at each start. Call it elsewhere: where the result of the command is known, or in
	// Node.Led.
	ErrReentrant = errors.New("millrace: called by the state machine, in a function that must not wait for its node")
)

// MayHaveCommitted reports whether a command that failed with err may have been applied, or may be applied
// later.
func MayHaveCommitted(err error) bool {
	return outcome.MayHaveCommitted(err) || errors.Is(err, ErrAlreadyApplied)
}

// RetryAfter returns when it is worth trying again after a refusal with ErrOverloaded, and whether err is one
// that says so.
func RetryAfter(err error) (after time.Duration, overloaded bool) { return outcome.RetryAfter(err) }

// OverloadedError says how much is waiting. errors.Is finds ErrOverloaded in it.
//
//	RetryAfter time.Duration // about how long the commands that wait need: 1 ms to 10 s
//	Commands   int           // how many wait in this group
//	Bytes      int64         // the memory that they take
//	Share      int64         // what the waiting commands of all groups of the host may take
//	Behind     int64         // what the leader's machine has still to apply, if that is why; 0: it is not
//	func Error() string        // the numbers in a sentence
//	func Is(target error) bool // true for ErrOverloaded
type OverloadedError = outcome.OverloadedError

// HaltedError says at which command a state machine is halted. errors.Is finds ErrMachineHalted in it.
//
//	Group        uint64 // the id of the group
//	First        uint64 // the index of the first command that may have halted the machine
//	Last         uint64 // the index of the last of them; First if it is known
//	FirstPos     uint32 // the place of the first among the commands with its index
//	LastPos      uint32 // the place of the last among the commands with its index
//	Undivided    bool   // no start can find the command: all of them share an entry
//	Cause        error  // what the machine has said
//	Skipped      uint64 // the entry that skips the command (Node.SkipCommand); 0: none
//	Held         uint64 // the entry in front of which the machine waits for that decision; 0: it does not
//	Version      uint32 // the version of the group, if WrongVersion
//	WrongVersion bool   // the program cannot do the version of the group (Machine.Versions)
//	Stack        []byte // where the machine has panicked; nil if it has not
//	Final        bool   // no entry of the log helps: replace the member
//	func Error() string                      // all of this in sentences, with what to do
//	func At() string                         // the name of the command for people
//	func Command() (at Position, known bool) // the command, if it is known which
//	func Advice() string                     // what to do, beginning with a semicolon; "" if that is not known
//	func MayBe(at Position) bool             // whether the command there is the only one that can have done it
//	func Unwrap() error                      // the Cause
//	func Is(target error) bool               // true for ErrMachineHalted
type HaltedError = outcome.HaltedError

// NotFoundedError says what the founding of the group lacks. errors.Is finds ErrNotFounded in it.
//
//	Group    uint64             // the id of the group
//	Founding diagnosis.Founding // which members are missing, silent or refused
//	func Error() string        // the same in a sentence, with what to do
//	func Is(target error) bool // true for ErrNotFounded
type NotFoundedError = outcome.NotFoundedError

// NotLeaderError names the leader, as far as this host knows. errors.Is finds ErrNotLeader in it.
//
//	Leader     uint64 // the id of the leader; 0: not known
//	Addr       string // its address for other members (Config.Members)
//	ClientAddr string // its address for clients (Config.ClientAddrs); "": none was given
//	func Error() string        // the leader and its addresses in a sentence
//	func Is(target error) bool // true for ErrNotLeader
type NotLeaderError = outcome.NotLeaderError

// AlreadyAppliedError says where the command was applied. errors.Is finds ErrAlreadyApplied in it.
type AlreadyAppliedError struct{ Receipt Receipt }

func (e *AlreadyAppliedError) Error() string {
	return fmt.Sprintf("%v: it is entry %v of term %d", ErrAlreadyApplied, Position{Index: e.Receipt.Index, Pos: e.Receipt.Pos}, e.Receipt.Term)
}

// Is makes errors.Is(err, ErrAlreadyApplied) hold.
func (e *AlreadyAppliedError) Is(target error) bool { return target == ErrAlreadyApplied }
