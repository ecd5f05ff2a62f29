package core

import (
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// send gives a message to the network.
func (w *world) send(m *raftpb.Message) {
	if m.To == 0 || m.To > uint64(len(w.nodes)) || m.To == m.From && m.Type != raftpb.MsgTransferLeader && m.Type != raftpb.MsgReadIndex {
		violate(Harmony, "node %d sends to node %d: %s", m.From, m.To, raft.DescribeMessage(*m, nil))
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
	w.plan(w.delay(), arrives, to).message = *m
	if w.odds(s.duplicate, Duplicated) {
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
	if odds == 0 || w.healing || w.rng.IntN(1<<16) >= odds {
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
