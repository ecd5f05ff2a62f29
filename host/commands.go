package host

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/divergence"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/object"
)

const defaultResultBytes = 8 << 20

// Commands makes a StateMachine for OpenGroup of a CommandMachine. In such a group each entry begins with a
// header (package session), and Group.Call is the way for its commands. The returned value serves one call of
// OpenGroup.
func Commands(m statemachine.CommandMachine, o statemachine.CommandOptions) statemachine.Machine {
	if o.KeepResults && o.Sessions.MaxResultBytes == 0 {
		o.Sessions.MaxResultBytes = defaultResultBytes
	}
	if !o.KeepResults {
		o.Sessions.MaxResultBytes = 0
	}
	return &commandGroup{machine: m, options: o}
}

// commandGroup is the state machine of a group whose entries have headers. It turns entries into commands,
// and suppresses those that were applied before: on all members alike, because it looks at nothing but the
// log.
//
// Rejected: to suppress duplicates when they are proposed. A leader does not know what an earlier one has
// committed until it has applied it, and two copies may be on the way at once.
type commandGroup struct {
	machine statemachine.CommandMachine
	options statemachine.CommandOptions
	group   *Group
	table   *session.Table
	sums    divergence.Sums

	suppressed atomic.Uint64 // commands that were not applied, of all verdicts
	evicted    atomic.Uint64 // sessions that were forgotten because the table was full
	sessions   atomic.Int64  // in the table

	inDigest bool // the user's Digest is being called; owned by the apply lane, or the turn

	// Owned by the apply lane; scratch.
	batch []statemachine.Command
	found int    // the callers of this many of batch are known
	held  uint64 // the machine holds the commands through this one, from before this life
	last  uint64 // the last command that it was given, or that came with a snapshot
}

// open prepares the machine for a group, whose log is there and not yet applied.
func (s *commandGroup) open(g *Group) error {
	o := &s.options
	switch {
	case s.group != nil:
		return fmt.Errorf("millrace: group %d cannot have the state machine of an earlier OpenGroup; make another one with Commands", g.id)
	case s.machine == nil:
		return fmt.Errorf("millrace: Commands needs a CommandMachine for group %d", g.id)
	case len(o.Version) > divergence.MaxVersion:
		return fmt.Errorf("millrace: CommandOptions.Version of group %d has %d bytes, want at most %d", g.id, len(o.Version), divergence.MaxVersion)
	}
	if err := o.Sessions.Validate(); err != nil {
		return fmt.Errorf("%w (CommandOptions.Sessions of group %d)", err, g.id)
	}
	if o.Applied != nil {
		if err := s.readApplied(g); err != nil {
			return err
		}
	}
	if o.Objects != nil {
		if o.Applied != nil {
			return fmt.Errorf("millrace: the state machine of group %d keeps its state on disk (CommandOptions.Applied), so it cannot have objects; a command decides which objects are kept when it is applied, and this machine gets no command twice", g.id)
		}
		if err := s.openObjects(g); err != nil {
			return err
		}
	}
	s.group, s.table = g, session.New(o.Sessions)
	s.compare()
	return nil
}

// readApplied learns which commands the machine holds. Each of them is in the log: the machine got it after
// the log had made it durable. If it is not, one of the two was wiped or restored.
func (s *commandGroup) readApplied(g *Group) error {
	held, err := s.appliedHere()
	switch last := g.writes.storage.log.LastIndex(); {
	case err != nil:
		return fmt.Errorf("millrace: the state machine of group %d does not say what it has applied: %w", g.id, err)
	case g.config.Volatile:
		return fmt.Errorf("millrace: Volatile of group %d is set, and its state machine keeps its state on disk (CommandOptions.Applied); a power cut could leave there what the log does not have", g.id)
	case held > last:
		return fmt.Errorf("millrace: the state machine of group %d has applied entry %d, and the log in %s ends at entry %d: one of the two was restored or replaced; restore both from the same moment, or empty the state machine, so that it gets all commands again", g.id, held, g.host.config.Dir, last)
	}
	s.held = held
	return nil
}

// Apply implements StateMachine. It gives the machine one batch for all entries, or two if it must look at
// the state in between (sums).
func (s *commandGroup) Apply(entries []statemachine.Entry) error {
	defer s.clear()
	defer s.countSessions()
	for i := range entries {
		e := &entries[i]
		h, command, err := session.Decode(e.Data)
		if err != nil {
			if before := s.flush(); before != nil {
				return before
			}
			return &outcome.CommandError{Index: e.Index, Err: fmt.Errorf("entry %d of group %d: %w", e.Index, s.group.id, err)}
		}
		var c object.Command
		var wrong error
		if hook := s.group.machine.apply.hook; hook != nil {
			if c, wrong, err = hook.before(e, h, command); err != nil {
				return err
			}
			command = c.Data
		}
		if h.HasStamp {
			s.group.machine.time.Note(s.table.Advance(h.Stamp), s.group.now())
		}
		verdict := session.Fresh
		if h.HasMark {
			var first session.Record
			verdict, first = s.table.Apply(h.Mark, e.Index, e.Term)
			if verdict != session.Fresh {
				if err := s.suppress(e, h.Mark, verdict, first); err != nil {
					return err
				}
			}
		}
		switch {
		case verdict != session.Fresh:
		case s.group.machine.apply.hook != nil && !s.group.machine.apply.hook.change(e, h, c, wrong):
		case e.Index > s.held:
			s.batch = append(s.batch, statemachine.Command{Index: e.Index, Term: e.Term, Time: s.table.Now(), Data: command, Objects: c.Names, Session: h.Mark.ID, Number: h.Mark.Number})
		case h.HasMark:
			s.table.Keep(nil) // the machine holds it, and its result is not known any more
		}
		if s.sums.Command(e.Data, verdict, s.table.Now()) {
			if n := len(s.batch); n > 0 && s.batch[n-1].Index == e.Index {
				s.batch[n-1].EndsBatch = true
			}
			if err := s.flush(); err != nil {
				return err
			}
			s.checkpoint(e.Index, e.Index >= s.held)
		}
	}
	return s.flush()
}

// countSessions notes for Metrics what is in the table.
func (s *commandGroup) countSessions() {
	n, _ := s.table.Sessions()
	s.sessions.Store(int64(n))
	s.evicted.Add(s.table.TakeEvicted())
}

// suppress does not apply a command, and tells the call that waits for it.
func (s *commandGroup) suppress(e *statemachine.Entry, m session.Mark, v session.Verdict, first session.Record) error {
	if v == session.Duplicate && len(s.batch) > 0 && first.Index >= s.batch[0].Index {
		if err := s.flush(); err != nil { // it is one of this batch: a caller that is told may read its effect
			return err
		}
		first, _ = s.table.Lookup(m.ID, m.Number)
	}
	s.findCallers() // in the order of the log
	s.suppressed.Add(1)
	switch {
	case v == session.Duplicate && first.Refused:
		s.group.proposals.RefuseApplied(e.Index, e.Term, m, s.group.machine.apply.refusedBefore(first.Index))
	case v == session.Duplicate:
		s.group.proposals.AnswerDuplicate(e.Index, e.Term, m, outcome.Receipt{Index: first.Index, Term: first.Term}, first.Result, first.Kept)
	case v == session.Expired:
		s.group.proposals.ExpireCall(e.Index, e.Term, m, outcome.ErrSessionExpired)
	case v == session.Forgotten:
		s.group.proposals.RefuseCall(e.Index, e.Term, m, errForgotten)
	default:
		s.group.proposals.RefuseCall(e.Index, e.Term, m, errSessionFull)
	}
	return nil
}

// refusedBefore is the outcome of a copy of a command that was refused, or skipped.
func (q *applyQueue) refusedBefore(index uint64) error {
	if slices.Contains(q.passed, index) {
		return fmt.Errorf("%w: it came first as entry %d", outcome.ErrSkipped, index)
	}
	return fmt.Errorf("%w: the command was refused at entry %d, where it came first", object.ErrRefused, index)
}

// findCallers finds the calls of the commands in the batch for which that was not done yet.
func (s *commandGroup) findCallers() {
	s.group.proposals.FindCallers(s.batch[s.found:])
	s.found = len(s.batch)
}

// flush gives the batch to the machine, and its results to the table.
func (s *commandGroup) flush() error {
	s.findCallers()
	defer s.clear()
	if len(s.batch) == 0 {
		return nil
	}
	if err := s.applyBatch(); err != nil {
		return err
	}
	s.last = s.batch[len(s.batch)-1].Index
	s.group.proposals.Applied(s.batch)
	switch {
	case s.options.KeepResults:
		for i := range s.batch {
			c := &s.batch[i]
			s.sums.Result(c.Result)
			if c.Number > 0 {
				s.table.Keep(c.Result)
			}
		}
	case resultForm(&s.options) != "":
		for i := range s.batch {
			s.sums.ResultSum(s.batch[i].ResultSum)
		}
	}
	return nil
}

// resultForm names the form in which members compare results; "": they do not.
func resultForm(o *statemachine.CommandOptions) string {
	if o.KeepResults {
		return cmp.Or(o.ResultForm, "kept")
	}
	return o.ResultForm
}

// applyBatch calls the machine.
func (s *commandGroup) applyBatch() error {
	if hook := s.group.machine.apply.hook; hook != nil {
		hook.calls(true)
		defer hook.calls(false)
	}
	return s.machine.Apply(s.batch)
}

// clear empties the scratch.
func (s *commandGroup) clear() {
	clear(s.batch)
	s.batch, s.found = s.batch[:0], 0
}

var (
	errForgotten   = fmt.Errorf("%w: its session said before that it waits for this number no more", outcome.ErrIndeterminate)
	errSessionFull = fmt.Errorf("%w: %w", outcome.ErrIndeterminate, outcome.ErrSessionFull)
)
