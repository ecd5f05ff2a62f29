package proposals

import (
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/completion"
)

// Waiter receives the outcome of one proposal, once. Its phase says which side may still decide about the
// command. While it is queued its client may withdraw it. After its turn has taken it, only the log decides.
//
// Each change of phase is one atomic step, so that a command is never both withdrawn and proposed.
type Waiter struct {
	phase   atomic.Uint32
	bytes   uint32        // that it holds since it is in the log; of the turn
	Outcome Settlement    // written before the phase becomes waiterAnswered, and not changed after that
	Token   chan struct{} // gets one element with the answer; capacity 1, so that answering never blocks
	call    *Call         // not nil: its owner is told instead
	to      *Completions  // not nil: it gets the outcome instead, with the tag
	tag     uint64
	pack    *pack // not nil: the waiter is in the ring for the clients of an entry with several commands
}

// pack is the clients of an entry with several commands. Their own waiters are not in the ring: a client may
// use its waiter again before the ring is done with the entry.
type pack struct {
	clients []*Waiter // by pos
	told    bool      // they know what happened to the entry
}

// newPack returns the waiter that stands for the clients of a batch that is one entry.
func newPack(batch []Proposal) *Waiter {
	p := &pack{clients: make([]*Waiter, len(batch))}
	for i := range batch {
		p.clients[i] = batch[i].Waiter
	}
	return &Waiter{pack: p}
}

// each calls f for the clients of an entry.
func (w *Waiter) each(f func(w *Waiter, pos uint32)) {
	if w.pack == nil {
		f(w, 0)
		return
	}
	for pos, client := range w.pack.clients {
		f(client, uint32(pos))
	}
}

// Completions gather outcomes of commands that one goroutine hands in.
type Completions = completion.Queue[outcome.Completion]

type delivery = completion.Delivery[outcome.Completion]

// NewWaiters returns a waiter for each tag, whose outcomes go to one place. They are one allocation, which
// the last of them keeps. Others are not kept for long: a log answers in its order.
func NewWaiters(tags []uint64, to *Completions) []Waiter {
	all := make([]Waiter, len(tags))
	for i, tag := range tags {
		all[i].to, all[i].tag = to, tag
	}
	return all
}

// complete is what Completions get of a waiter.
func (w *Waiter) complete(o Settlement) outcome.Completion {
	return outcome.Completion{Tag: w.tag, Receipt: o.Receipt, Err: o.Err}
}

// Settlement is what a proposal comes to: a receipt or an error.
type Settlement struct {
	Receipt outcome.Receipt
	Err     error
}

const (
	waiterQueued    uint32 = iota // waits for the group's turn
	waiterTaken                   // offered to the core
	waiterWithdrawn               // given up by its client before its turn
	waiterAnswered                // Outcome is known
	waiterGivenUp                 // given up by its client after its turn: only of a call
)

// NewWaiter returns one for a command.
func NewWaiter() *Waiter { return &Waiter{Token: make(chan struct{}, 1)} }

// Pool holds waiters, which are reused by Propose. After Propose has received the token, no other goroutine
// holds the waiter. A waiter that was given up is left to the garbage collector, as an answer may still come.
//
// Each host has a pool of its own: a channel that a test has made in a bubble of testing/synctest must not
// reach a host outside.
type Pool struct{ pool sync.Pool }

// Get returns a waiter for a command.
func (p *Pool) Get() *Waiter {
	if w, ok := p.pool.Get().(*Waiter); ok {
		return w
	}
	return NewWaiter()
}

// Put gives a waiter back whose token was received.
func (p *Pool) Put(w *Waiter) { p.pool.Put(w) }

// begin is called by the group in the command's turn. It returns false if the client has withdrawn the
// command.
func (w *Waiter) begin() bool { return w.phase.CompareAndSwap(waiterQueued, waiterTaken) }

// Withdraw is called by the client. It reports whether the command will certainly not be proposed.
func (w *Waiter) Withdraw() bool { return w.phase.CompareAndSwap(waiterQueued, waiterWithdrawn) }

// Answered reports whether Outcome may be read.
func (w *Waiter) Answered() bool { return w.phase.Load() == waiterAnswered }

// Answer is called once, with the outcome of the command. It is not for calls (Queue.answerCall).
func (w *Waiter) Answer(o Settlement) {
	if w.to != nil {
		w.to.Add(w.complete(o))
		return
	}
	w.Outcome = o
	w.phase.Store(waiterAnswered)
	w.Token <- struct{}{}
}

// requeue makes a call that was taken one that its client may withdraw. It returns false if the client has
// given the call up.
func (w *Waiter) requeue() bool { return w.phase.CompareAndSwap(waiterTaken, waiterQueued) }

// giveUp is called by the client of a call. It reports whether no outcome is known, and none will be told.
func (w *Waiter) giveUp() bool { return w.phase.CompareAndSwap(waiterTaken, waiterGivenUp) }

// finish ends a call, and reports whether its client still waits for the outcome.
func (w *Waiter) finish() bool {
	return w.phase.CompareAndSwap(waiterTaken, waiterAnswered) || w.phase.CompareAndSwap(waiterQueued, waiterAnswered)
}

// waits reports whether the client of a call has not given it up.
func (w *Waiter) waits() bool {
	phase := w.phase.Load()
	return phase != waiterWithdrawn && phase != waiterGivenUp
}

// Reset prepares the waiter for another command.
func (w *Waiter) Reset() {
	w.Outcome = Settlement{}
	w.phase.Store(waiterQueued)
}
