package etcdnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Proposals wait for a leader, because ports rely on it: they propose once, with a deadline, and expect to sit out an
// election. They wait outside of the core, on one channel that is closed when a leader is known; then each tries anew,
// in no certain order, and may have to wait again. A proposal that ends by its context was never given to the core.
//
// Only calls of this node's application wait. What peers pass on does not (Step): it would hold up the reader of a
// connection, and with it the messages that elect the leader.

// What waits for a leader is bounded, in number and in bytes; one more is raft.ErrProposalDropped.
const (
	MaxWaitingProposals = 4096
	MaxWaitingBytes     = 64 << 20
)

// waitingProposals is what waits for a leader; guarded by Local.mu.
type waitingProposals struct {
	led          chan struct{} // closed when a leader is known; nil while nobody waits
	count, bytes int
}

func (w *waitingProposals) join(bytes int) (<-chan struct{}, error) {
	if w.count > 0 && (w.count >= MaxWaitingProposals || w.bytes+bytes > MaxWaitingBytes) {
		return nil, fmt.Errorf("%w: no leader is known, and %d proposals of %d bytes wait for one already; at most %d of %d bytes may",
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

// Propose offers one command, and waits while no leader is known.
func (n *Local) Propose(ctx context.Context, data []byte) error {
	return n.propose(ctx, inputBytes+len(data), func() error { return n.core.Propose(data) })
}

// ProposeConfChange offers a change of members, and waits while no leader is known.
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

// proposeWithin gives a proposal to the core, or if there is no leader a place among those who wait for one.
func (n *Local) proposeWithin(bytes int, offer func() error) (led <-chan struct{}, err error) {
	err = n.refuses(bytes)
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
