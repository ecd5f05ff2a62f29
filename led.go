package millrace

import (
	"context"
	"errors"
	"iter"
	"time"
)

// ErrNotLed is the cause (context.Cause) with which a context of Node.Led ends when the leadership does.
var ErrNotLed = errors.New("millrace: this node does not lead any more")

// Led yields a context for each term in which this node leads, when everything that earlier leaders have
// committed is applied here. It is for work that one node does for all: timers, sweeps, a queue to another
// system. The context ends when this node learns that it does not lead any more, with the cause ErrNotLed,
// and when the loop's body returns. Led waits for the next term then. It ends when ctx ends or the node
// stops.
//
// A leader that is cut off learns late of another leader. So for a moment two nodes may be in the body.
// What must not happen twice is decided by a command, in Apply: with the term of Status, as an example.
//
//	for ctx := range node.Led(ctx) {
//		sweep(ctx, node) // returns when its ctx ends
//	}
func (n *Node[C, R]) Led(ctx context.Context) iter.Seq[context.Context] {
	return func(yield func(context.Context) bool) {
		for done := uint64(0); ; { // done: the last term that was yielded
			change := n.group.RoleChange()
			s := n.Status()
			if n.Err() != nil {
				return
			}
			if s.Role == RoleLeader && s.Term != done {
				yielded, goOn := n.lead(ctx, s.Term, yield)
				if !goOn || ctx.Err() != nil {
					return
				}
				if yielded {
					done = s.Term
				}
				continue
			}
			select {
			case <-change:
			case <-n.Failed():
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

// lead calls the body of a loop over Led for a term, when the state may be read.
func (n *Node[C, R]) lead(ctx context.Context, term uint64, yield func(context.Context) bool) (yielded, goOn bool) {
	led, end := n.untilNotLed(ctx, term)
	defer end() // also if the body panics
	_, err := n.Read(led, Linearizable)
	switch {
	case err == nil:
		return true, yield(led)
	case led.Err() == nil: // the machine is halted, or too many reads wait
		pause(led)
	}
	return false, true
}

// retryLed is how long Led waits before it asks again whether the state may be read.
const retryLed = 200 * time.Millisecond

func pause(ctx context.Context) {
	again := time.NewTimer(retryLed)
	defer again.Stop()
	select {
	case <-again.C:
	case <-ctx.Done():
	}
}

// untilNotLed returns a context that ends when this node does not lead in the term any more.
func (n *Node[C, R]) untilNotLed(ctx context.Context, term uint64) (led context.Context, end func()) {
	led, cancel := context.WithCancelCause(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for {
			change := n.group.RoleChange()
			if s := n.Status(); s.Role != RoleLeader || s.Term != term || n.Err() != nil {
				cancel(ErrNotLed)
				return
			}
			select {
			case <-change:
			case <-n.Failed():
			case <-led.Done():
				return
			}
		}
	}()
	return led, func() { cancel(context.Canceled); <-watched }
}
