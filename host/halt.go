package host

// This file says what the halt of a machine means for callers. Package apply (halt.go) says what it means for
// the machine.

// Halted returns why the state machine of this member is halted, a HaltedError, or nil while it works. A
// group whose machine is halted has not failed: Err is nil, and Failed stays open. The event.MachineHalted
// tells a supervisor. It never waits.
func (g *Group) Halted() error {
	if e := g.machine.apply.Halted(); e != nil {
		return e
	}
	return nil
}

// Halts returns how often the state machine of this member has halted since the group was opened. A machine
// that is made again from a snapshot has an older state for a while. So a reader that reads the state after
// StartRead, and not in a function of StartBetween, must compare. What it has read counts if Halts is the
// same before and after, and Halted is nil both times. Halts never waits.
func (g *Group) Halts() uint64 { return g.machine.apply.Halts() }

// worksSince reports whether the machine works, and has not halted since Halts had returned a count.
func (g *Group) worksSince(halts uint64) bool {
	return g.machine.apply.Halted() == nil && g.Halts() == halts
}

// rejectHalted says why a command is not taken, or returns nil.
func (g *Group) rejectHalted() error {
	if g.Err() != nil {
		return nil // which is said instead
	}
	return g.Halted()
}

// answerHalted answers the clients that wait when the machine has halted. It is part of a turn.
func (g *Group) answerHalted() (again bool) {
	h := g.machine.apply.Untold()
	if h == nil {
		return g.machine.apply.AwaitsLog()
	}
	defer g.machine.apply.Told(h)
	why := error(h.Err)
	left := g.inbox.dropProposals()
	g.proposals.AnswerAll(left, why)
	st := g.core.node.BasicStatus()
	g.proposals.AnswerByTerm(0, st.Commit, st.CommittedBy, g.core.node.EntryTerm)
	g.proposals.EndCalls(why)
	g.proposals.spaceWaiters.Release()
	return g.machine.apply.AwaitsLog()
}
