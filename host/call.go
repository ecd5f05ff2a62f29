package host

import (
	"context"
	"fmt"
)

// CallRoom is how many bytes the Data of a Call leaves free before the command, for the header of its entry.
const CallRoom = 64

// Call is a command on its way to the state machine, and where its outcome goes. Its fields are
// set before Group.Call and not changed after that. A Call is used once.
type Call struct {
	// Data is CallRoom free bytes and the command. It belongs to the group from Group.Call on.
	Data []byte
	// Owner learns the outcome of the command.
	Owner Caller
	// Here makes the call fail with ErrNotLeader if this host does not lead. Otherwise it is forwarded.
	Here bool

	w waiter
}

// Caller learns the outcome of a Call. The host's workers call its methods, so they must not block and must
// not call the group.
type Caller interface {
	// Committed reports, once at most, that a quorum holds the command durably. The state machine of this host
	// may have applied it before.
	Committed(Receipt)
	// Failed reports the outcome of a command that gets no result, as an error like those of Group.Propose.
	Failed(error)
	// Duplicate reports that the command was applied before, under the same number of its session, and its
	// first result if that was kept.
	Duplicate(r Receipt, result []byte, kept bool)
}

// Call hands in a command and returns at once. An error means that the command was not taken; the owner
// hears nothing then.
func (g *Group) Call(c *Call) error {
	if n := len(c.Data) - CallRoom; n > g.config.MaxCommandBytes {
		return fmt.Errorf("%w: %d bytes, at most %d (GroupConfig.MaxCommandBytes)", ErrTooLarge, n, g.config.MaxCommandBytes)
	}
	if g.host.closing.Load() {
		return ErrStopped
	}
	c.Data[CallRoom-1] = plainHeader
	c.w.call = c
	if err := g.inbox.putProposal(proposal{command: c.Data[CallRoom-1:], waiter: &c.w}); err != nil {
		return wrap(err, g.Err())
	}
	g.wake()
	return nil
}

// Withdraw gives a call up, because ctx has ended. It returns the error for its caller: one that wraps only
// the context's if the command was certainly not proposed, an ErrIndeterminate if it may have been, or nil if
// its outcome is known: then the owner has been told, or is being told.
func (g *Group) Withdraw(ctx context.Context, c *Call) error {
	switch {
	case c.w.withdraw():
		return notProposed(ctx)
	case c.w.answered():
		return nil
	}
	return indeterminate(ctx)
}

// answer passes an outcome to the owner of a call.
func (c *Call) answer(o outcome) {
	if o.err != nil {
		c.Owner.Failed(o.err)
		return
	}
	c.Owner.Committed(o.receipt)
}
