package etcdnode

import "github.com/millrace/millrace/raft"

// The channel of Readys has space for one. Building a Ready accepts it: the core counts its work as begun,
// and later events are in the next Ready. So it is built as late as possible: when the consumer asks, by
// Ready() or by Advance, if there is something to report, and otherwise by the first input that causes
// something to report. Then the Ready holds everything up to that moment in one batch, and each entry is
// looked at once, however many inputs arrive while a consumer is slow.
//
// A node cannot see that a goroutine waits to receive from a channel, so the call of Ready() is the only
// sign. A tick also asks for a Ready, for a consumer that keeps the channel; such a consumer waits at most
// one tick instead of for ever.
//
// Invariant: in synchronous mode no Ready is built until Advance was called for the last one, and Advance
// counts only for a Ready that was received. An Advance for a Ready that is still in the channel would call
// entries durable that were never written.

// Ready asks for the next Ready and returns the channel on which it arrives, always the same one. The channel
// is never closed; Done reports the end.
func (n *Local) Ready() <-chan raft.Ready {
	n.within(n.ask)
	return n.ready
}

func (n *Local) ask() {
	if len(n.ready) == 0 {
		n.wanted = true
	}
}

// offer builds a Ready if one is wanted and none is outstanding. The send never blocks: the channel has space
// for one, it is empty, and only offer sends.
func (n *Local) offer() {
	if !n.wanted || n.unadvanced || len(n.ready) > 0 {
		return
	}
	if !n.core.HasReady() {
		n.backlogBytes = 0 // the consumer has received everything
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

// Advance tells the node that the Ready received last has been processed, and asks for the next one. In
// asynchronous mode it panics with the raft.BrokenInvariant that names the rule, and the node is stopped. An
// Advance without a Ready received before it does nothing but warn the Logger.
func (n *Local) Advance() {
	n.within(func() {
		switch {
		case n.err != nil:
			return
		case !n.async && (!n.unadvanced || len(n.ready) > 0):
			n.warnf("%d: Advance was called without a Ready received before it; the call is ignored", n.id)
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
