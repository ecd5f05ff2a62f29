package core

import (
	"github.com/millrace/millrace/raft/raftpb"
)

// stages are what a node does in steps, so that something can go wrong between them: it makes a snapshot,
// then cuts its log; it hands its leadership over, then ends.
type stages struct {
	building   bool // a snapshot; it has captured:
	captured   raftpb.SnapshotMetadata
	state      []byte
	installing bool // it applies what comes before a snapshot
	trimming   bool // the snapshot is published, and the log is not cut yet
	leaving    bool // it is about to end in good order
}

// beginSnapshot captures the state of the state machine. The snapshot is complete some time later.
func (n *node) beginSnapshot() {
	if n.building || n.trimming || n.leaving {
		return
	}
	n.building = true
	n.captured = raftpb.SnapshotMetadata{Index: n.applied, Term: n.appliedTerm, ConfState: n.conf}
	n.state = state(n.applied, n.sum)
	if took := n.w.upToSide(n.w.build); took > 0 {
		n.w.plan(took, built, n)
		return
	}
	n.publish()
}

// publish ends the making of a snapshot.
func (n *node) publish() {
	n.building = false
	if !n.disk.publish(n.captured, n.state) {
		return
	}
	n.w.oracle.publishes(n, &n.captured, n.state)
	n.trimming = true
	if takes := n.w.upToSide(n.w.trim); takes > 0 {
		n.w.plan(takes, trimmed, n)
		return
	}
	n.cut()
}

// cut drops the log that the snapshot covers, except its last entries.
func (n *node) cut() {
	n.trimming = false
	if n.disk.cut(n.w.swarm.keep) {
		n.w.faults[Compacted]++
	}
}

func (w *world) upToSide(most int) int {
	if most == 0 {
		return 0
	}
	return w.side.IntN(most + 1)
}

// leave begins the end of a life in good order: the node hands its leadership over if it has it.
func (n *node) leave() {
	n.leaving = true
	if n.w.trace != nil {
		n.w.trace("%d is about to end", n.id)
	}
	n.w.plan(1+n.w.side.IntN(3*beats), leaves, n)
	if !n.leads {
		return
	}
	for _, to := range n.conf.Voters {
		if to != n.id && n.w.nodes[to-1].rn != nil {
			n.w.events++
			_ = n.rn.TransferLeader(to) // it may be under way already
			n.moved()
			return
		}
	}
}

// left ends a life in good order: what is queued is written, and nothing is lost.
func (n *node) left() {
	if n.rn == nil || n.full > n.w.beat {
		n.leaving = false // what is queued cannot be written
		return
	}
	w := n.w
	w.faults[Left]++
	queued := n.appends
	for i := range queued {
		n.raise(&queued[i])
		if n.store(&queued[i], false); n.rn == nil {
			return
		}
	}
	n.disk.sync()
	n.disk.live = n.disk.durable.clone()
	n.disk.live.hs.Commit = min(n.disk.live.hs.Commit, n.disk.live.last())
	n.disk.durable.hs.Commit = n.disk.live.hs.Commit
	n.ends()
	if w.trace != nil {
		w.trace("%d has ended: %+v, log from %d to %d", n.id, n.disk.durable.hs, n.disk.durable.base.Index+1, n.disk.durable.last())
	}
	w.oracle.remembers(n)
	w.plan(1+w.side.IntN(20*beats), restarts, n)
}
