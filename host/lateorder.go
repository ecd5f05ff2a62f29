package host

import (
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
)

// A leader that hands over orders the target to campaign (raft/transfer.go), and gives up after an election
// timeout. It leads on then, and cannot take the order back. The order may still wait: in the socket of a
// process that is stopped, or in the inbox of a group whose turn hangs. A target that campaigns when it goes
// on deposes a leader that works, since voters grant what the order of a leader asks for.
//
// So a member refuses an order that may have waited for half an election timeout or longer. It knows how long
// the order was in the inbox. What was in a socket it does not know: it refuses all orders when its clock is
// late, which is a pause that was not noticed yet, and for half an election timeout after a pause as long as
// that. This costs no transfer that its leader still wants: the leader repeats the order with every sign of
// life of the target, until it gives up. Rejected: a number in the order, which the target compares with what
// it hears later. After a pause the order is read first, and what is later behind it.

// recordOrderAt notes that an order has come. The transport calls it.
func (g *Group) recordOrderAt() {
	g.leadership.lateOrders.orderAt.CompareAndSwap(0, max(g.host.clock.metronome.ticks(), 1))
}

// mayBeLate reports whether an order to campaign that came at a tick may have waited too long. 0 is now.
func (g *Group) mayBeLate(since int64) bool {
	c, late := &g.host.clock, g.host.config.lateTicks()
	now := c.metronome.ticks()
	return since > 0 && now-since >= late || now-c.latest().Ticks >= late || c.awakeAtBeat()-c.pauses.longAt.Load() < late
}

// dropLateOrders drops orders to campaign that may be late from what a turn has taken.
func (g *Group) dropLateOrders() {
	if !slices.ContainsFunc(g.work.taken.messages, isOrder) || !g.mayBeLate(g.leadership.lateOrders.orderAt.Swap(0)) {
		return
	}
	before := len(g.work.taken.messages)
	g.work.taken.messages = slices.DeleteFunc(g.work.taken.messages, isOrder)
	g.countDropped(before-len(g.work.taken.messages), "an order to campaign that may come late: this process, or its turns, had paused")
}

func isOrder(m raftpb.Message) bool { return m.Type == raftpb.MsgTimeoutNow }
