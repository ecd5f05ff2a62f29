package statemachine

import (
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/raft/raftpb"
)

// Position returns where the command is.
func (c *Command) Position() raftpb.Position { return raftpb.Position{Index: c.Index, Pos: c.Pos} }

// CommandMachine is a state machine whose commands have sessions, and callers on this host.
type CommandMachine interface {
	// Apply applies commands in the order of the log, like Machine.Apply, and gives the result of each
	// command with a Caller to it. A command that was applied before, under the same number of its session,
	// does not come again. An error or a panic halts the machine of this member (Group.Halted); callers of
	// that batch are told ErrNoResult. A machine that knows which command it is returns a CommandError.
	//
	// Unlike the Data of its commands, the batch is reused: the machine must not keep it.
	Apply(batch []Command) error
}

// Deliverer is a CommandMachine that gives no results in Apply. It keeps them until Deliver. That is called
// after each Apply that has returned nil, with the same batch. The group has forgotten the Calls of the batch
// by then, so an owner that gets its result may reuse its Call. Deliver must not block. A
// panic halts the machine of this member, and the owners that have no result yet get none.
type Deliverer interface{ Deliver(batch []Command) }

// Command is a committed command.
type Command struct {
	Index, Term uint64
	Pos         uint32 // among the commands with this Index, from 0
	// Time is the log time: how long the group has existed, as its leaders have measured. It never goes back,
	// and is the same on every member.
	Time time.Duration
	// Data is the command. The machine may keep it, unless it is a Borrower, and must not change it. Commands
	// with one Index share an array, so keeping one of them keeps them all in memory. Data can be empty.
	Data []byte
	// Objects are the sets that the command names: they are held by a quorum, and this host has them.
	Objects []object.ID
	// Session and Number say which command of which session this is. They are zero if the command was sent
	// once only.
	Session session.ID
	Number  uint64
	// Caller is the owner of the Call on this host that waits for the result; nil if there is none.
	Caller outcome.Caller
	// Awaited says that a result is of use: Caller is set, or CommandOptions.KeepResults is. What is large and
	// for the caller alone is then built on the member where it waits. Without KeepResults, Awaited differs
	// between members and comes only once, so it must change nothing but the result: no state, no Digest, and
	// nothing of ResultSum. With KeepResults it is set on every member and each time. A result that is kept
	// and compared is the same everywhere.
	Awaited bool
	// Handed is when the machine gets the batch, by Group.Now: Receipt.Applied. It differs between members,
	// so the machine must not use it. 0 if there is no Caller.
	Handed time.Duration
	// Published is what the machine publishes with this command, in order, for subscribers on every host
	// (host.Group.Subscribe). The machine appends to it, the same bytes on each member and each time. They
	// belong to the group from then on: they must be no part of Data if the machine is a Borrower.
	Published [][]byte
	// Result is set by the machine if CommandOptions.KeepResults: the result as bytes, nil for none. It
	// belongs to the group from then on. The group copies a result that is a part of Data.
	Result []byte
	// ResultSum is set by the machine if CommandOptions.ResultForm is set and KeepResults is not: a number
	// that depends on the result, and is equal for equal results.
	ResultSum uint64
	// EndsBatch is set if this command is the last of its batch on every member. The machine is then in the
	// same state everywhere, so ResultSum may include what later commands could change.
	EndsBatch bool
}
