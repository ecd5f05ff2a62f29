package etcdnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Proposals wait for a leader, because ported programs rely on it: they propose once, with a deadline, and
// expect the call to outlast an election. Proposals wait outside the core, on one channel that is closed when
// a leader is known. Each then tries again, in no particular order, and may have to wait again. A proposal
// that ends by its context was never given to the core.
//
// Only calls of this node's application wait. A proposal that a peer forwards (Step) does not wait: it would
// block the reader of a connection, and with it the messages that elect the leader.

// The limits on the proposals that wait for a leader, in number and in bytes. One more is refused with
// raft.ErrProposalDropped.
const (
	MaxWaitingProposals = 4096
	MaxWaitingBytes     = 64 << 20
)

// waitingProposals counts the proposals that wait for a leader. Local.mu guards it.
type waitingProposals struct {
	led          chan struct{} // closed when a leader is known; nil while no proposal waits
	count, bytes int
}

func (w *waitingProposals) join(bytes int) (<-chan struct{}, error) {
	if w.count > 0 && (w.count >= MaxWaitingProposals || w.bytes+bytes > MaxWaitingBytes) {
		return nil, fmt.Errorf("%w: no leader is known, and %d proposals with %d bytes wait for one already; at most %d with %d bytes may wait",
			raft.ErrProposalDropped, w.count, w.bytes, MaxWaitingProposals, MaxWaitingBytes)
	}
	if w.led == nil {
		w.led = make(chan struct{})
	}
	w.count++
	w.bytes += bytes
	return w.led, nil
}

func (w *waitingProposals) depart(bytes int) {
	w.count--
	w.bytes -= bytes
}

func (w *waitingProposals) wake() {
	if w.led != nil {
		close(w.led)
		w.led = nil
	}
}

// Propose proposes one command. It waits while no leader is known.
func (n *Local) Propose(ctx context.Context, data []byte) error {
	return n.propose(ctx, inputBytes+len(data), func() error { return n.core.Propose(data) })
}

// ProposeConfChange proposes a membership change. It waits while no leader is known.
func (n *Local) ProposeConfChange(ctx context.Context, cc raftpb.ConfChangeI) error {
	_, data, err := raftpb.MarshalConfChange(cc)
	if err != nil {
		return err
	}
	return n.propose(ctx, inputBytes+len(data), func() error { return n.core.ProposeConfChange(cc) })
}

func (n *Local) propose(ctx context.Context, bytes int, offer func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	led, err := n.proposeOrJoin(bytes, offer)
	for led != nil {
		err = n.awaitLeader(ctx, led)
		n.within(func() {
			n.waiting.depart(bytes)
			if led = nil; err == nil {
				led, err = n.proposeWithin(bytes, offer)
			}
		})
	}
	return err
}

func (n *Local) proposeOrJoin(bytes int, offer func() error) (led <-chan struct{}, err error) {
	n.within(func() { led, err = n.proposeWithin(bytes, offer) })
	return led, err
}

// proposeWithin gives a proposal to the core. While no leader is known it returns the channel to wait on
// instead. The caller is within the critical section.
func (n *Local) proposeWithin(bytes int, offer func() error) (led <-chan struct{}, err error) {
	err = n.rejectInput(bytes)
	switch {
	case errors.Is(err, ErrBehind):
		return nil, fmt.Errorf("%w: %w", raft.ErrProposalDropped, err)
	case err != nil:
		return nil, err
	case n.core.BasicStatus().Lead == raft.None:
		return n.waiting.join(bytes)
	}
	n.backlogBytes += bytes
	return nil, offer()
}

func (n *Local) awaitLeader(ctx context.Context, led <-chan struct{}) error {
	select {
	case <-led:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-n.done:
		return n.err
	}
}
