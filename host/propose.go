package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
)

// Propose replicates a command and returns once it is committed: a quorum holds it durably. (With
// pipeline.Basic, once this host has applied it.) The command belongs to Millrace after this call and must
// not be changed. Propose is safe for concurrent use. Only a leader takes commands.
//
// If ctx ends before the command's turn, the command is not proposed: it is certainly not committed. If ctx
// ends later, the error is an ErrIndeterminate. Both wrap the context's error, and say what the group was
// missing then: errors.Is finds ErrNotFounded, ErrNoQuorum, ErrNoLeader or ErrDiskFull. The other errors
// are variables of this package (ErrNotLeader and so on).
func (g *Group) Propose(ctx context.Context, command []byte) (outcome.Receipt, error) {
	if ctx.Err() != nil {
		return outcome.Receipt{}, fmt.Errorf("millrace: not proposed: %w", context.Cause(ctx))
	}
	w := g.host.memory.waiters.Get()
	if err := g.submit(command, w); err != nil {
		g.host.memory.waiters.Put(w)
		return outcome.Receipt{}, err
	}
	select {
	case <-w.Token:
	case <-ctx.Done():
		if w.Withdraw() {
			return outcome.Receipt{}, g.notProposed(ctx) // the group still holds w, and drops it in its turn
		}
		if !w.Answered() {
			return outcome.Receipt{}, g.Indeterminate(ctx)
		}
		<-w.Token // a known outcome wins over the end of the context
	}
	o := w.Outcome
	w.Reset()
	g.host.memory.waiters.Put(w)
	return o.Receipt, o.Err
}

// Pending is a command that was taken and whose outcome may not be known yet. It may be copied. Its methods
// may be called any number of times, from any goroutine, and always return the same outcome. The zero Pending
// is no command.
type Pending struct {
	w     *proposals.Waiter
	group *Group
}

var errNoCommand = errors.New("millrace: this Pending is empty; use one that Submit returned without an error")

// Submit hands in a command without waiting for its outcome, so that one goroutine can have many under way.
// An error means that the command was not taken. No context limits the command: once taken it is proposed,
// even if no client waits for it.
func (g *Group) Submit(command []byte) (Pending, error) {
	w := proposals.NewWaiter()
	if err := g.submit(command, w); err != nil {
		return Pending{}, err
	}
	return Pending{w, g}, nil
}

func (g *Group) submit(command []byte, w *proposals.Waiter) error {
	err := g.accept(command, w)
	g.countRefused(err)
	return err
}

func (g *Group) accept(command []byte, w *proposals.Waiter) error {
	if err := g.rejectPlain(); err != nil {
		return err
	}
	if err := g.rejectCommand(command); err != nil {
		return err
	}
	wakes, err := g.inbox.enqueueProposal(proposals.Proposal{Command: command, Waiter: w})
	if err != nil {
		return outcome.WithCause(err, g.Err())
	}
	if wakes {
		g.wake()
	}
	return nil
}

// rejectPlain says why the group takes no commands without a header, or returns nil.
func (g *Group) rejectPlain() error {
	switch {
	case g.proposals.hasCommands:
		return fmt.Errorf("millrace: group %d is open with Commands, whose entries have a header; use Call instead of Propose and Submit", g.id)
	case g.host.shutdown.closing.Load():
		return outcome.ErrStopped
	}
	return g.rejectHalted()
}

// rejectCommand says why a command is not one, or returns nil.
func (g *Group) rejectCommand(command []byte) error {
	switch {
	case len(command) == 0:
		return outcome.ErrEmpty
	case len(command) > g.config.MaxCommandBytes:
		return g.tooLarge(len(command))
	}
	return nil
}

// Wait returns the outcome as soon as it is known. If ctx ends first, this wait ends with an ErrIndeterminate
// that wraps the context's error; the command continues, and a later Wait may return its outcome.
func (p Pending) Wait(ctx context.Context) (outcome.Receipt, error) {
	if p.w == nil {
		return outcome.Receipt{}, errNoCommand
	}
	if !p.w.Answered() {
		select {
		case <-p.w.Token:
			p.w.Token <- struct{}{} // for the next Wait
		case <-ctx.Done():
			if !p.w.Answered() { // a known outcome wins over the end of the context
				return outcome.Receipt{}, p.group.Indeterminate(ctx)
			}
		}
	}
	return p.w.Outcome.Receipt, p.w.Outcome.Err
}

// Poll returns the outcome, if it is known.
func (p Pending) Poll() (r outcome.Receipt, done bool, err error) {
	switch {
	case p.w == nil:
		return outcome.Receipt{}, true, errNoCommand
	case !p.w.Answered():
		return outcome.Receipt{}, false, nil
	}
	return p.w.Outcome.Receipt, true, p.w.Outcome.Err
}
