package apply

import (
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/object"
)

// Hook is between the log of a group and its machine: it sees each command before the table of
// sessions does. A group with large objects has one, and nothing else of a command's path knows of them. The
// apply lane calls it. Header and command are values: by pointer each would be garbage of every command.
type Hook interface {
	// Before reads what a command begins with. The error is a *WaitingForObject if the entry must wait.
	// wrong says why the command must be refused, on all members alike.
	Before(e *statemachine.Entry, h session.Header, data []byte) (c object.Command, wrong, err error)
	// Change does what a command says, and reports whether the machine gets it.
	Change(e *statemachine.Entry, h session.Header, c object.Command, wrong error) (toMachine bool)
	// Calls says whether the machine is being called.
	Calls(is bool)
	// Applied is called when more is applied.
	Applied()
}
