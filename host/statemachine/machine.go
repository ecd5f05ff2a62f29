// Package statemachine has what a program brings to a group: its state machine, the commands that this
// gets, and snapshots of its state. It is words only; package host calls what implements them.
package statemachine

import (
	"github.com/millrace/millrace/raft/raftpb"
)

// Entry is a committed command: its position in the log, and Data as it was proposed. A leader may put the
// commands that come together into one entry of the log. They have one Index then, and each its Pos.
type Entry struct {
	Index, Term uint64
	Pos         uint32 // among the commands with this Index, from 0
	More        bool   // commands with this Index follow
	Data        []byte
}

// Position returns where the command is.
func (e *Entry) Position() raftpb.Position { return raftpb.Position{Index: e.Index, Pos: e.Pos} }

// Machine is the user's state machine, to which commands are replicated.
type Machine interface {
	// Apply takes committed commands in the order of their positions, each once in the life of the process;
	// after a restart they come again from the first. The same commands must have the same effect on every
	// host. Calls never overlap. An error or a panic halts the machine: this member applies
	// nothing more, and still votes and replicates (Group.Halted).
	//
	// The state machine may keep the Data of any command, and must not change it. The Data of commands with
	// one Index share an array, so keeping one of them keeps them all in memory. On the host that proposed a
	// command, Data may be the slice that was given to Propose. A client that cuts many commands from one
	// array then keeps them together. The slice of entries is reused: the machine must not keep it.
	//
	// A machine that is a Borrower must keep nothing: see there.
	Apply(entries []Entry) error
}

// Borrower is a Machine or a CommandMachine that keeps nothing of the Data that it is given, and says so. The
// host then saves an allocation for each small command, on each member.
type Borrower interface {
	// BorrowsData reports whether the machine keeps no part of any Data when Apply has returned, neither in its
	// state nor in a result. It copies what it needs. Data is then valid during Apply only: the memory is that
	// of other commands afterwards. The host asks once, when the group is opened.
	//
	// Programs with the race detector, and the simulator, overwrite the memory after Apply with the byte 0xDB.
	// There a machine that says so and keeps something finds out.
	BorrowsData() bool
}

// Borrows reports whether a Machine or a CommandMachine is a Borrower that says so.
func Borrows(machine any) bool {
	b, is := machine.(Borrower)
	return is && b.BorrowsData()
}

// NamesCallee is a CommandMachine, or a Snapshot in its WriteTo, that calls several functions of its user.
// Callee names the function that is being called, such as "Decode of the codec", for the error if that
// panics. Callee is called on the same goroutine.
type NamesCallee interface{ Callee() string }
