package host

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/session"
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
	// Session and Number say which command of which session this is; zero if it was sent once only.
	Session session.ID
	Number  uint64
	// Caller is the owner of the Call on this host that waits for the result; nil if there is none.
	Caller Caller
}

// CommandOptions configure Commands.
type CommandOptions struct {
	// Sessions bounds the table of sessions. All members of a group must have the same options.
	Sessions session.Options
}

// Commands makes a StateMachine for OpenGroup of a CommandMachine.
func Commands(m CommandMachine, o CommandOptions) StateMachine {
	return &commandGroup{machine: m, table: session.New(o.Sessions)}
}

// commandGroup is the state machine of a group whose entries have headers.
type commandGroup struct {
	machine    CommandMachine
	group      *Group
	batch      []Command
	table      *session.Table
	suppressed atomic.Uint64
}

// Apply implements StateMachine.
func (s *commandGroup) Apply(entries []Entry) error {
	s.batch = s.batch[:0]
	defer func() { clear(s.batch) }()
	known := 0
	for i := range entries {
		e := &entries[i]
		h, command, err := session.Decode(e.Data)
		if err != nil {
			return fmt.Errorf("entry %d of group %d: %w", e.Index, s.group.id, err)
		}
		if h.HasStamp {
			s.group.time.note(s.table.Advance(h.Stamp), s.group.now())
		}
		if h.HasMark {
			verdict, r := s.table.Apply(h.Mark, e.Index, e.Term)
			if verdict != session.Fresh {
				s.group.findCallers(s.batch[known:]) // in the order of the log
				known = len(s.batch)
				s.refuse(e, h.Mark, verdict, r)
				continue
			}
		}
		s.batch = append(s.batch, Command{Index: e.Index, Term: e.Term, Time: s.table.Now(), Data: command, Session: h.Mark.ID, Number: h.Mark.Number})
	}
	s.group.findCallers(s.batch[known:])
	if len(s.batch) == 0 {
		return nil
	}
	if err := s.machine.Apply(s.batch); err != nil {
		return err
	}
	s.group.appliedBatch()
	return nil
}

// refuse does not apply a command.
func (s *commandGroup) refuse(e *Entry, m session.Mark, v session.Verdict, r session.Record) {
	s.suppressed.Add(1)
	switch v {
	case session.Duplicate:
		s.group.answerDuplicate(e.Index, e.Term, m, Receipt{Index: r.Index, Term: r.Term}, r.Result, r.Kept)
	case session.Expired:
		s.group.expireCall(e.Index, e.Term, m, ErrSessionExpired)
	default:
		s.group.refuseCall(e.Index, e.Term, m, fmt.Errorf("%w: %v", ErrSessionExpired, v))
	}
}
