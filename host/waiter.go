package host

import (
	"sync"
	"sync/atomic"
)

// waiter is where the outcome of one proposal is put, once. Its phase says who may still decide about the
// command: as long as it is queued its client may withdraw it; from the turn that takes it on only the log
// decides.
//
// Each change of phase is one atomic step, so that a command is never both withdrawn and proposed.
type waiter struct {
	phase   atomic.Uint32
	outcome outcome       // written before the phase becomes waiterAnswered, and not changed after that
	token   chan struct{} // holds one element from the answer on; capacity 1, so that answering never blocks
}

type outcome struct {
	receipt Receipt
	err     error
}

const (
	waiterQueued    uint32 = iota // waits for the group's turn
	waiterTaken                   // offered to the core
	waiterWithdrawn               // given up by its client before its turn
	waiterAnswered                // outcome is known
)

func newWaiter() *waiter { return &waiter{token: make(chan struct{}, 1)} }

// waiters are used again by Propose, which alone knows that nobody else holds them: it has taken the token,
// after which the group does not touch a waiter. One that was given up is left to the garbage collector, as
// an answer may still come.
var waiters = sync.Pool{New: func() any { return newWaiter() }}

// take is the group's: the turn of the command has come. It reports false if the client has withdrawn it.
func (w *waiter) take() bool { return w.phase.CompareAndSwap(waiterQueued, waiterTaken) }

// withdraw is the client's: it reports whether the command will surely not be proposed.
func (w *waiter) withdraw() bool { return w.phase.CompareAndSwap(waiterQueued, waiterWithdrawn) }

// answered reports whether outcome may be read.
func (w *waiter) answered() bool { return w.phase.Load() == waiterAnswered }

// answer is called once, by whoever knows what became of the command.
func (w *waiter) answer(o outcome) {
	w.outcome = o
	w.phase.Store(waiterAnswered)
	w.token <- struct{}{}
}

// reset makes the waiter fit for another command.
func (w *waiter) reset() {
	w.outcome = outcome{}
	w.phase.Store(waiterQueued)
}
