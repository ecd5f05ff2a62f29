package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
)

// CallRoom is how many bytes the Data of a Call leaves free before the command, for the header of its entry.
const CallRoom = session.Room

// Call is a command on its way to the state machine, and where its outcome goes. Its fields are set before
// Group.Call and not changed after that. A Call may be reused when Group.Call has returned an error, or
// when its outcome is complete. It is complete when the owner was told Failed or Duplicate, or was told
// Committed and got the result. A call that was withdrawn with an error may still be in queues of the
// group.
type Call struct {
	// Data is CallRoom free bytes and the command. It belongs to the group from Group.Call on.
	Data []byte
	// Owner learns the outcome of the command.
	Owner outcome.Caller
	// Here makes the call fail with ErrNotLeader if this host does not lead. It is neither forwarded nor
	// sent twice. Otherwise a host that does not lead forwards the command, and sends it again until its
	// outcome is known or the owner withdraws it.
	Here bool
	// Session is the place of the command in a session of the user, who may send it again from another
	// process. With nil the group uses a session of its own where a command may be sent twice.
	Session *session.Mark
	// Waits says that the owner waits for space if Group.Call returns ErrOverloaded (Group.AskSpace). Metrics
	// and Explain count such a command as refused when that wait has failed, and others at once.
	Waits bool

	state proposals.Call
}

// Reset makes a Call ready for another command when its outcome is complete, and keeps nothing of this one.
// It returns false if another Call must be made: this one went to another host, or has a place in a session.
func (c *Call) Reset() bool {
	if !c.state.Forget() {
		return false
	}
	c.Data, c.Owner, c.Here, c.Session, c.Waits = nil, nil, false, nil, false
	return true
}

// Call hands in a command and returns at once. An error means that the command was not taken; the owner
// hears nothing then. Errors: an OverloadedError, ErrTooLarge, ErrStopped, ErrNotLeader if c.Here, and what
// session.Mark.Validate says, and a HaltedError
// if the state machine of this member is halted.
func (g *Group) Call(c *Call) error {
	err := g.acceptCall(c)
	if full := errors.Is(err, outcome.ErrOverloaded); !full || !c.Waits {
		g.countRefused(err)
	}
	return err
}

func (g *Group) acceptCall(c *Call) error {
	if err := g.rejectCall(c); err != nil {
		return err
	}
	wakes, err := g.inbox.enqueueProposal(g.begin(c))
	if err != nil {
		if errors.Is(err, outcome.ErrOverloaded) {
			return g.overloaded()
		}
		return outcome.WithCause(err, g.Err())
	}
	if wakes {
		g.wake()
	}
	return nil
}

// begin prepares a call for its way.
func (g *Group) begin(c *Call) proposals.Proposal {
	s := &c.state
	s.Data, s.Owner, s.Here, s.Session = c.Data, c.Owner, c.Here, c.Session
	return s.Begin(g.proposals.Queue)
}

// countRefused counts a command that was refused at the door.
func (g *Group) countRefused(err error) {
	g.proposals.Refusals.Add(err, 1)
	if errors.Is(err, outcome.ErrOverloaded) {
		g.countOverload(1)
	}
}

// CheckSize returns what Call would answer to a command of n bytes, without its room, as far as the size
// goes. It is for those who know the size before they have encoded the command. Who then refuses the command
// counts that (CountTooLarge). Any goroutine may call it.
func (g *Group) CheckSize(n int) error {
	if n <= g.config.MaxCommandBytes {
		return nil
	}
	return g.tooLarge(n)
}

// CountTooLarge counts a command that its client has refused because of CheckSize. err is what the client
// says. Any goroutine may call it.
func (g *Group) CountTooLarge(err error) {
	if errors.Is(err, outcome.ErrTooLarge) {
		g.proposals.Refusals.Add(err, 1)
	}
}

func (g *Group) tooLarge(n int) error {
	return fmt.Errorf("%w: %d bytes, at most %d (MaxCommandBytes)", outcome.ErrTooLarge, n, g.config.MaxCommandBytes)
}

func (g *Group) rejectCall(c *Call) error {
	n := len(c.Data) - CallRoom
	switch {
	case !g.proposals.hasCommands:
		return fmt.Errorf("millrace: group %d takes plain entries (Propose, Submit); open it with Commands to use Call", g.id)
	case n < 0:
		return fmt.Errorf("millrace: the Data of a Call has %d bytes, want %d bytes of room and the command", len(c.Data), CallRoom)
	case n > g.config.MaxCommandBytes:
		return g.tooLarge(n)
	case g.host.shutdown.closing.Load():
		return outcome.ErrStopped
	}
	if err := g.rejectHalted(); err != nil {
		return err
	}
	if c.Here {
		if leader := g.Status().Leader; leader != g.self && g.Err() == nil {
			return g.host.notLeader(leader)
		}
	}
	if c.Session != nil {
		return c.Session.Validate()
	}
	return nil
}

// Withdraw gives a call up, because ctx has ended. It returns the error for its caller. The error wraps no
// ErrIndeterminate if the command is certainly not committed and never will be. It wraps ErrIndeterminate
// if the command may be committed, now or later. It is nil if the outcome is known: then the owner has been
// told, or is being told. After an error the owner must ignore what it may still hear.
func (g *Group) Withdraw(ctx context.Context, c *Call) error {
	switch c.state.Withdraw() {
	case proposals.Answered:
		return nil
	case proposals.NotProposed:
		g.wakeLazily() // a turn forgets the call
		return g.notProposed(ctx)
	case proposals.GivenUp:
		g.wakeLazily()
	}
	return g.Indeterminate(ctx)
}
