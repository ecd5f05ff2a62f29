package examination

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
)

// findHalted finds a state machine that is halted.
func (e *examination) findHalted() {
	h := e.Machine.Halt
	if h == nil {
		return
	}
	fix := "read the error, and ask Explain on the other members: if they work, look at this host; if they are halted at the same command, start all of them with a program that can apply it, or skip it on all of them with millrace members skip (SkipCommand)"
	switch {
	case h.WrongVersion:
		fix = "start this host with a program that can do this version (Machine.Versions); it continues at that entry, and nothing is lost"
	case h.Stays:
		fix = "replace this member: millrace members plan DIR replace ID, with an empty directory"
	case h.Whole && !h.Skipped:
		fix = "read the error: the machine keeps its state on disk and gets these commands, one entry, in one call, so no start tells which it is; start all members with a program that can apply it, or whose machine names it (CommandError), or skip the one that you find at fault"
	case !h.One && !h.Whole:
		fix = "start this host again: it applies these commands one at a time, and says which it is"
	case h.Skipped:
		fix = "start this host again: the command is skipped, and this machine can begin from nothing only at a start"
	}
	e.found(diagnosis.CodeMachineHalted, 0, h.Since, fix, "halted at %s: %v; the member votes and replicates, and refuses commands and reads", h.At, h.Err)
}

// findStuckApply finds a state machine that holds its lane, or the turn, and a group that waits for a
// lane.
func (e *examination) findStuckApply() {
	const fix = "take the stacks of this process (SIGQUIT) and look for Apply, or for the function of a read (StartBetween, Do): it waits for a lock, a disk or a network; the other groups and members go on"
	bound, next := e.Bounds.Stall, e.Status.Applied+1
	if ran := e.Machine.Turn; ran > 0 {
		if ticks := int64(ran / e.Bounds.Tick); ticks > bound {
			e.found(diagnosis.CodeApplyStuck, 0, e.Now-ticks, fix,
				"a turn of the group has run for %v, and entry %d is the next to apply: the state machine is declared NonBlocking (GroupConfig) and blocks", diagnosis.Rounded(ran), next)
		}
		return
	}
	s := &e.Machine.Lane
	if !s.Busy || e.Now-s.Since <= bound {
		return
	}
	if s.Running {
		e.found(diagnosis.CodeApplyStuck, 0, s.Since, fix,
			"a call of the state machine for entry %d and later ones has run for %v (Config.StallTimeout is %v), and committed entries through %d wait; of this host's %d apply lanes %d hang, and %d were started in their place",
			next, e.text(e.Now-s.Since), e.Config.StallTimeout, e.Status.Committed, s.Lanes, s.Hung, s.Substitutes)
		return
	}
	e.found(diagnosis.CodeApplyStuck, 0, s.Since, fix,
		"entry %d and later ones have waited for an apply lane for %v (Config.StallTimeout is %v); of this host's %d apply lanes %d hang in state machines, and %d were started in their place",
		next, e.text(e.Now-s.Since), e.Config.StallTimeout, s.Lanes, s.Hung, s.Substitutes)
}

// findLackingObject finds a machine that waits for a large object.
func (e *examination) findLackingObject() {
	p := e.Machine.Object
	if p == nil || e.Now-p.Since <= e.Bounds.Stall {
		return
	}
	text := "other members have it, or a snapshot that is beyond the entry"
	if p.Lost {
		text = "no member that was asked has it, and the leader was asked for a snapshot that is beyond the entry"
	}
	e.found(diagnosis.CodeObjectLacking, 0, p.Since, "look at the disk of this host (ObjectOptions.ReserveBytes) and at the network to the members that hold the object; the machine continues by itself",
		"entry %d names object %v, which this host has not fetched for %v; %s", p.Entry, p.ID, e.text(e.Now-p.Since), text)
}

// findDivergence finds members whose states differ.
func (e *examination) findDivergence() {
	d := e.Differs
	if d == nil {
		return
	}
	member := uint64(0)
	for _, m := range d.Members {
		if m.Minority && member == 0 {
			member = m.ID
		}
	}
	fix := "find what is not the same on every host: the order of a map, the clock, chance, another program; then restart the members that are wrong with an empty state machine"
	switch d.In {
	case event.DivergedOptions:
		fix = "give all members of the group the same CommandOptions.Sessions (Machine.Sessions); those that differ from a majority stop"
	case event.DivergedCommands:
		fix = "check the disks and the logs of these hosts (millrace wal verify), and report it: this must not happen"
	}
	if e.DiffersBy != e.Host {
		e.found(diagnosis.CodeDiverged, member, e.DiffersSince, fix, "host %d, which leads, says: %v", e.DiffersBy, d)
		return
	}
	e.found(diagnosis.CodeDiverged, member, e.DiffersSince, fix, "%v", d)
}

// findUncompared finds members whose results or states the leader does not compare with its own.
func (e *examination) findUncompared() {
	for _, u := range e.Uncompared {
		var lack, fix []string
		if theirs, ours := u.Theirs.Form, u.Ours.Form; theirs != ours {
			lack = append(lack, fmt.Sprintf("the form of the results is %s on host %d and %s on host %d", named(theirs), u.Member, named(ours), e.Host))
			fix = append(fix, "type of results, Machine.Results and Machine.Unwatched (CommandOptions.ResultForm and KeepResults)")
		}
		if u.Theirs.States != u.Ours.States {
			with, without := u.Member, e.Host
			if u.Ours.States {
				with, without = without, with
			}
			lack = append(lack, fmt.Sprintf("host %d has a digest of the state and host %d has none", with, without))
			fix = append(fix, "Machine.Digest (CommandOptions.Digest)")
		}
		e.found(diagnosis.CodeNotCompared, u.Member, u.Since,
			fmt.Sprintf("give all members the same %s, or another Version to those that may differ", strings.Join(fix, " and the same ")),
			"%s, so that a difference between the two is not noticed", strings.Join(lack, ", "))
	}
}

// named is the name of a form as Explain has it.
func named(form string) string {
	if form == "" {
		return "none"
	}
	return fmt.Sprintf("%q", form)
}
