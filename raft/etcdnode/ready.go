package etcdnode

import "github.com/millrace/millrace/raft"

// The channel of Readys has room for one. To build a Ready is to accept it: the core counts it as being done, and what
// comes later is in the next. So it is built as late as can be, when the consumer asks, by Ready() or by Advance, if
// there is something to say, and otherwise by the first input that makes something to say. Then it holds all that has come
// until then, in one batch; and each entry is looked at once, however many inputs pass while a consumer is slow.
//
// A channel that is received from cannot be seen to be waited at, so the call of Ready() is the one way to see it. A tick
// asks, too, for a consumer that keeps the channel: else it could wait for ever, so it waits for a tick.
//
// Invariant: in synchronous mode nothing is built until Advance has come for the last, and Advance counts only for one
// that was received. An Advance for a Ready that still lies in the channel would call durable what nobody has written.

// Ready asks for the next Ready and returns the channel that brings it, always the same one. It is never closed; Done tells
// of the end.
func (n *Local) Ready() <-chan raft.Ready {
	n.within(n.ask)
	return n.ready
}

func (n *Local) ask() {
	if len(n.ready) == 0 {
		n.wanted = true
	}
}

// offer builds a Ready if one is wanted and may be had. The send never blocks: there is room for one, none is there, and
// nobody else sends.
func (n *Local) offer() {
	if !n.wanted || n.unadvanced || len(n.ready) > 0 {
		return
	}
	if !n.core.HasReady() {
		n.backlogBytes = 0 // the consumer has had all there is
		return
	}
	rd := n.core.Ready()
	if err := n.core.Err(); err != nil {
		n.end(err)
		return
	}
	n.wanted, n.unadvanced, n.backlogBytes = false, !n.async, 0
	n.ready <- rd
}

func (n *Local) withdraw() {
	select {
	case <-n.ready:
	default:
	}
}

// Advance says that the Ready last received is done, and asks for the next. In asynchronous mode it panics, with the
// raft.BrokenInvariant that names the rule, and the node is stopped. One without a Ready received before it is told to the
// Logger and does nothing.
func (n *Local) Advance() {
	n.within(func() {
		switch {
		case n.err != nil:
			return
		case !n.async && (!n.unadvanced || len(n.ready) > 0):
			n.warnf("%d: Advance was called without a Ready received before it; it is ignored", n.id)
			return
		}
		n.core.Advance(raft.Ready{}) // in asynchronous mode this panics
		n.unadvanced = false
		n.ask()
	})
}

func (n *Local) warnf(format string, args ...any) {
	if n.logger != nil {
		n.logger.Warningf(format, args...)
	}
}
