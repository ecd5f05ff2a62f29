package host

import "github.com/millrace/millrace/host/diagnosis"

// lookForHalted finds a state machine that is halted.
func (e *examination) lookForHalted() {
	h := e.machine.apply.halting.now.Load()
	if h == nil {
		return
	}
	fix := "read the error, and ask Explain on the other members: if they work, look at this host; if they are halted at the same command, start all of them with a program that can apply it, or skip it on all of them with millrace members skip (SkipCommand)"
	switch {
	case h.err.stays:
		fix = "replace this member: millrace members plan DIR replace ID, with an empty directory"
	case h.err.First != h.err.Last:
		fix = "start this host again: it applies these commands one at a time, and says which it is"
	case h.err.Skipped > 0:
		fix = "start this host again: the command is skipped, and this machine can begin from nothing only at a start"
	}
	e.found(diagnosis.CodeMachineHalted, 0, h.since, fix, "halted at %s: %v; the member votes and replicates, and refuses commands and reads", h.err.at(), h.err.Cause)
}
