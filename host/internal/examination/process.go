package examination

import (
	"fmt"

	"github.com/millrace/millrace/host/diagnosis"
)

// findStop is the verdict on a group that does nothing any more.
func (e *examination) findStop() {
	fix := "find out why with the error and the log of this host, then close the group and open it again"
	switch e.Stop.Why {
	case StoppedByProgram:
		fix = "the program has closed it; open it again, or ignore this"
	case StoppedByRemoval:
		fix = "do what the error says; the group works without this host"
	case StoppedByFullDisk:
		fix = "make space, then start the host again"
	case StoppedByDisk:
		fix = "look at the disk and at the kernel's log, then start this host again; what it has acknowledged is safe on the others"
	case StoppedByDirectory:
		fix = "see \"identity refused\""
	}
	e.found(diagnosis.CodeStopped, 0, e.Stop.Since, fix, "the group has stopped on this host: %v", e.Stop.Err)
	if e.Stop.Directory {
		e.found(diagnosis.CodeIdentityRefused, 0, e.Stop.Since, FixDirectory, "%v", e.Stop.Err)
	}
}

// findPauses finds a process that did not run.
func (e *examination) findPauses() {
	p, timeout := &e.Pauses, e.Bounds.Election
	if p.Longest < max(timeout/2, 1) && p.Missed < timeout {
		return
	}
	e.add(diagnosis.Cause{
		Code: diagnosis.CodePaused, Since: e.duration(p.Since),
		Evidence: fmt.Sprintf("in the last %v this process did not run for %v in all, in %d pauses of which the longest took %v; a clock that runs too fast or too slow cannot be seen from here",
			e.text(e.Bounds.Paused()), e.text(p.Missed), p.N, e.text(p.Longest)),
		Fix: "look for what stops the process: too few processors or a quota (throttling), swapping, a suspended virtual machine, SIGSTOP, long collections of garbage",
	})
}

// findOverload finds a group that refuses commands for lack of memory, or entries of its leader, and
// no other cause of that.
func (e *examination) findOverload() {
	for _, c := range []diagnosis.Code{diagnosis.CodeDiskFull, diagnosis.CodeDiskStalled, diagnosis.CodeApplyStuck, diagnosis.CodeNoQuorum, diagnosis.CodeNoLeader} {
		if e.d.Has(c) {
			return
		}
	}
	m := &e.Load
	shares := fmt.Sprintf("of the shares of Config.MemoryBytes (%d), waiting commands use %d of %d bytes, proposed ones %d of %d, received messages %d of %d, entries for the disk %d of %d; one group gets half of a share at most",
		e.Config.MemoryBytes, m.Waiting.Used, m.Waiting.Share, m.Proposed.Used, m.Proposed.Share, m.Received.Used, m.Received.Share, m.Writing.Used, m.Writing.Share)
	if r := m.Commands; r.N > 0 && e.Now-r.Latest <= e.Bounds.Wait() && m.Behind > 0 {
		e.found(diagnosis.CodeOverloaded, 0, r.Since, "make the state machine faster, or propose less; if a restart may apply more, raise MaxLagBytes",
			"%d commands were refused with ErrOverloaded, the latest %v ago; the state machine has still to apply %d bytes, which is more than MaxLagBytes", r.N, e.text(e.Now-r.Latest), m.Behind)
	} else if r.N > 0 && e.Now-r.Latest <= e.Bounds.Wait() {
		e.found(diagnosis.CodeOverloaded, 0, r.Since, "propose less at a time, or spread the commands over more groups and hosts; if there is memory, raise Config.MemoryBytes",
			"%d commands were refused with ErrOverloaded, the latest %v ago; %s", r.N, e.text(e.Now-r.Latest), shares)
	}
	if r := m.Messages; r.N > 0 && e.Now-r.Latest <= e.Bounds.Wait() && r.Latest-r.Since > e.Bounds.Wait() {
		e.found(diagnosis.CodeOverloaded, 0, r.Since, "look at the disk and the processor of this host, which is slower than its leader; if there is memory, raise Config.MemoryBytes",
			"%d messages of other members were dropped for lack of memory, the latest %v ago; %s", r.N, e.text(e.Now-r.Latest), shares)
	}
}
