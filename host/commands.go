package host

import (
	"fmt"
	"time"
)

// CommandMachine is a state machine whose commands have callers on this host.
type CommandMachine interface {
	// Apply applies commands in the order of the log, like StateMachine.Apply, and gives the result of each
	// command with a Caller to it.
	Apply(batch []Command) error
}

// Command is a committed command.
type Command struct {
	Index, Term uint64
	// Time is the log time: how long the group has existed, as its leaders have measured. It never goes back,
	// and is the same on every member.
	Time time.Duration
	// Data is the command. The machine may keep it and must not change it.
	Data []byte
	// Caller is the owner of the Call on this host that waits for the result; nil if there is none.
	Caller Caller
}

// CommandOptions configure Commands.
type CommandOptions struct{}

// Commands makes a StateMachine for OpenGroup of a CommandMachine.
func Commands(m CommandMachine, o CommandOptions) StateMachine { return &commandGroup{machine: m} }

// commandGroup is the state machine of a group whose entries have headers.
type commandGroup struct {
	machine CommandMachine
	group   *Group
	batch   []Command
}

// plainHeader begins an entry without a session.
const plainHeader = 1

// Apply implements StateMachine.
func (s *commandGroup) Apply(entries []Entry) error {
	s.batch = s.batch[:0]
	for i := range entries {
		e := &entries[i]
		if e.Data[0] != plainHeader {
			return fmt.Errorf("millrace: entry %d of group %d has a header of an unknown version, %d", e.Index, s.group.id, e.Data[0])
		}
		s.batch = append(s.batch, Command{Index: e.Index, Term: e.Term, Data: e.Data[1:]})
	}
	s.group.called.take(s.batch)
	defer clear(s.batch)
	return s.machine.Apply(s.batch)
}
