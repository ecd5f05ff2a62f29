package millrace

import (
	"context"
	"fmt"
	"sync"
)

// Receipt says where a command stands in the log.
type Receipt struct {
	Index, Term uint64
}

// proposal is a command on its way into the log, and who waits for it.
type proposal struct {
	command []byte
	waiter  *waiter
}

// overheadBytes is about what a proposal takes in memory besides its command: waiter, channel, places in queues. It counts
// against every bound, or millions of tiny commands would fit into one that is meant for thousands of large ones.
const overheadBytes = 192

func (p proposal) bytes() int64 { return int64(len(p.command)) + overheadBytes }

// waiter is where the outcome of one proposal is put, once.
type waiter struct {
	outcome chan outcome // capacity 1: whoever answers never blocks
}

type outcome struct {
	receipt Receipt
	err     error
}

func (w *waiter) answer(o outcome) { w.outcome <- o }

// waiters are used again once their outcome has been read. One that was abandoned is left to the garbage collector, as
// an answer may still come.
var waiters = sync.Pool{New: func() any { return &waiter{outcome: make(chan outcome, 1)} }}

// Propose replicates a command and returns once it is committed: a quorum holds it durably. (With pipeline.Basic, once
// this host has applied it.) The command belongs to Millrace from here on and must not be changed. Safe for concurrent
// use; only a leader takes commands.
//
// When ctx ends first the error is an ErrIndeterminate that wraps the context's; when it has ended before the call, only the
// context's, and the command was not taken. The other errors are those of errors.go.
func (g *Group) Propose(ctx context.Context, command []byte) (Receipt, error) {
	if ctx.Err() != nil {
		return Receipt{}, fmt.Errorf("millrace: not proposed: %w", context.Cause(ctx))
	}
	p, err := g.Submit(command)
	if err != nil {
		return Receipt{}, err
	}
	return p.Wait(ctx)
}

// Pending is a command that was taken and whose outcome is not known yet.
type Pending struct{ w *waiter }

// Submit hands in a command without waiting for its outcome, so that one goroutine can have many under way. An error
// means that the command was not taken.
func (g *Group) Submit(command []byte) (Pending, error) {
	switch {
	case len(command) == 0:
		return Pending{}, ErrEmpty
	case len(command) > g.maxCommandBytes:
		return Pending{}, fmt.Errorf("%w: %d bytes, at most %d (Config.MaxCommandBytes)", ErrTooLarge, len(command), g.maxCommandBytes)
	}
	w := waiters.Get().(*waiter)
	if err := g.inbox.putProposal(proposal{command: command, waiter: w}); err != nil {
		waiters.Put(w)
		return Pending{}, wrap(err, g.Err())
	}
	g.task.Wake()
	return Pending{w}, nil
}

// Wait returns the outcome. It may be called once.
func (p Pending) Wait(ctx context.Context) (Receipt, error) {
	select {
	case o := <-p.w.outcome:
		waiters.Put(p.w)
		return o.receipt, o.err
	case <-ctx.Done():
		if r, done, err := p.Poll(); done { // select takes either when there are both
			return r, err
		}
		return Receipt{}, fmt.Errorf("%w: %w", ErrIndeterminate, context.Cause(ctx))
	}
}

// Poll returns the outcome if it is known. Once it has returned one, neither Poll nor Wait may be called again.
func (p Pending) Poll() (r Receipt, done bool, err error) {
	select {
	case o := <-p.w.outcome:
		waiters.Put(p.w)
		return o.receipt, true, o.err
	default:
		return Receipt{}, false, nil
	}
}
