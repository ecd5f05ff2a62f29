package outcome

// Completion is the outcome of one command or read of many (host.Group.SubmitMany).
type Completion struct {
	// Tag is what the command or read was handed in with.
	Tag uint64
	// Receipt is that of a command that is committed.
	Receipt Receipt
	// Read is what a read may rely on. It is zero for a command.
	Read ReadAt
	// Err is nil for a command that is committed, and for a read that may go on. Otherwise it is one of the
	// errors of Group.Propose or of Group.StartRead.
	Err error
}
