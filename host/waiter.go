package host

import (
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host/outcome"
)

// waiter receives the outcome of one proposal, once. Its phase says which side may still decide about the
// command: while it is queued its client may withdraw it; after its turn has taken it, only the log decides.
//
// Each change of phase is one atomic step, so that a command is never both withdrawn and proposed.
type waiter struct {
	phase   atomic.Uint32
	bytes   uint32        // that it holds since it is in the log; of the turn
	outcome settlement    // written before the phase becomes waiterAnswered, and not changed after that
	token   chan struct{} // gets one element with the answer; capacity 1, so that answering never blocks
	call    *Call         // not nil: its owner is told instead
}

// settlement is what a proposal comes to: a receipt or an error.
type settlement struct {
	receipt outcome.Receipt
	err     error
}

const (
	waiterQueued    uint32 = iota // waits for the group's turn
	waiterTaken                   // offered to the core
	waiterWithdrawn               // given up by its client before its turn
	waiterAnswered                // outcome is known
	waiterGivenUp                 // given up by its client after its turn: only of a call
)

func newWaiter() *waiter { return &waiter{token: make(chan struct{}, 1)} }

// waiterPool holds waiters, which are reused by Propose. Only Propose knows that no other goroutine holds
// one: it has received the token, after which the group does not touch the waiter. A waiter that was given
// up is left to the garbage collector, as an answer may still come.
//
// Each host has a pool of its own: a channel that a test has made in a bubble of testing/synctest must not
// reach a host outside.
type waiterPool struct{ pool sync.Pool }

func (p *waiterPool) get() *waiter {
	if w, ok := p.pool.Get().(*waiter); ok {
		return w
	}
	return newWaiter()
}

func (p *waiterPool) put(w *waiter) { p.pool.Put(w) }

// take is called by the group in the command's turn. It returns false if the client has withdrawn the
// command.
func (w *waiter) take() bool { return w.phase.CompareAndSwap(waiterQueued, waiterTaken) }

// withdraw is called by the client. It reports whether the command will certainly not be proposed.
func (w *waiter) withdraw() bool { return w.phase.CompareAndSwap(waiterQueued, waiterWithdrawn) }

// answered reports whether outcome may be read.
func (w *waiter) answered() bool { return w.phase.Load() == waiterAnswered }

// answer is called once, with the outcome of the command. It is not for calls (proposalQueue.answerCall).
func (w *waiter) answer(o settlement) {
	w.outcome = o
	w.phase.Store(waiterAnswered)
	w.token <- struct{}{}
}

// putBack makes a call that was taken one that its client may withdraw. It returns false if the client has
// given the call up.
func (w *waiter) putBack() bool { return w.phase.CompareAndSwap(waiterTaken, waiterQueued) }

// giveUp is called by the client of a call. It reports whether no outcome is known, and none will be told.
func (w *waiter) giveUp() bool { return w.phase.CompareAndSwap(waiterTaken, waiterGivenUp) }

// finish ends a call, and reports whether its client still waits for the outcome.
func (w *waiter) finish() bool {
	return w.phase.CompareAndSwap(waiterTaken, waiterAnswered) || w.phase.CompareAndSwap(waiterQueued, waiterAnswered)
}

// waits reports whether the client of a call has not given it up.
func (w *waiter) waits() bool {
	phase := w.phase.Load()
	return phase != waiterWithdrawn && phase != waiterGivenUp
}

// reset prepares the waiter for another command.
func (w *waiter) reset() {
	w.outcome = settlement{}
	w.phase.Store(waiterQueued)
}
