package core

import (
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
)

// send gives a message to the network.
func (w *world) send(m *raftpb.Message) {
	if m.To == 0 || m.To > uint64(len(w.nodes)) || m.To == m.From && m.Type != raftpb.MsgTransferLeader && m.Type != raftpb.MsgReadIndex {
		violate(property.Contract, "node %d sends to node %d: %s", m.From, m.To, raft.DescribeMessage(*m, nil))
	}
	w.sent.messages++
	if m.Type == raftpb.MsgSnap {
		w.sent.snapshots++
	}
	s := &w.swarm
	// From is not the sender in two types; then the link of another node decides, which is as good.
	if m.From-1 < uint64(len(w.cut)) && w.cut[m.From-1][m.To-1] || w.odds(s.lose, Lost) {
		w.outcome(m, raft.SnapshotFailure)
		if from := w.nodes[m.From-1]; from.rn != nil && !w.healing && w.rng.IntN(16) == 0 {
			from.rn.ReportUnreachable(m.To)
		}
		return
	}
	to := w.nodes[m.To-1]
	later, twice := 0, false
	if w.bursts.until > w.beat {
		var lost bool
		if later, twice, lost = w.bursts.draw(w, m); lost {
			w.outcome(m, raft.SnapshotFailure)
			return
		}
	}
	w.plan(w.delay()+later, arrives, to).message = *m
	if w.odds(s.duplicate, Duplicated) || twice {
		w.plan(w.delay(), arrives, to).message = *m
	}
}

// delay draws how many beats a message takes.
func (w *world) delay() int {
	s := &w.swarm
	if w.odds(s.late, Late) {
		return w.rng.IntN(s.lateness)
	}
	return w.upTo(s.delay)
}

// odds draws whether a fault of the network strikes.
func (w *world) odds(odds int, f Fault) bool {
	if odds == 0 || w.healing || w.rng.IntN(1<<16) >= odds || !w.ledger.Happens(rateOf[f]) {
		return false
	}
	w.faults[f]++
	return true
}

// outcome tells the sender of a snapshot what happened to it, as a transport does.
func (w *world) outcome(m *raftpb.Message, status raft.SnapshotStatus) {
	if m.Type != raftpb.MsgSnap {
		return
	}
	if from := w.nodes[m.From-1]; from.rn != nil {
		e := w.plan(1+w.rng.IntN(beats), reported, from)
		e.n, e.outcome = int(m.To), status
	}
}

// rateOf says which injections stand for a rate of faults.
var rateOf = [faultKinds]coverage.Fault{Lost: coverage.DropBurst, Duplicated: coverage.DuplicateBurst, Late: coverage.LongDelay}

// bursts are faults of the network that end soon. They concern all messages, or those from and to one node.
type bursts struct {
	until                         int // beat
	drop, duplicate, reorder, lag int // beats until which each lasts
	of                            uint64
	by                            int
}

// burst begins one.
func (w *world) burst(f coverage.Fault, n *node) {
	election := w.swarm.election * beats
	b := w.bursts
	until := w.beat + 1 + w.side.IntN(2*election)
	b.until, b.of = max(b.until, until), n.id
	if w.side.IntN(2) == 0 {
		b.of = 0
	}
	switch f {
	case coverage.DropBurst:
		b.drop = until
	case coverage.DuplicateBurst:
		b.duplicate = until
	case coverage.ReorderBurst:
		b.reorder = until
	default:
		b.lag, b.by = until, election+w.side.IntN(3*election)
	}
	if w.injects(f, n) {
		w.bursts = b
	}
}

// draw draws what a burst does to a message: how much later it arrives, whether twice, whether not at all.
func (b *bursts) draw(w *world, m *raftpb.Message) (later int, twice, lost bool) {
	if b.of != 0 && m.From != b.of && m.To != b.of {
		return 0, false, false
	}
	if b.drop > w.beat && w.side.IntN(2) == 0 {
		w.faults[Lost]++
		return 0, false, true
	}
	if b.reorder > w.beat {
		later = w.side.IntN(4 * beats)
	}
	if b.lag > w.beat && w.side.IntN(4) > 0 {
		w.faults[Late]++
		later += b.by
	}
	if b.duplicate > w.beat && w.side.IntN(2) == 0 {
		w.faults[Duplicated]++
		twice = true
	}
	return later, twice, false
}
