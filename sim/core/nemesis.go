package core

import (
	"github.com/millrace/millrace/raft/raftpb"
)

// strike is what goes wrong in a tick, and what clients ask for that is rare.
func (w *world) strike() {
	s := &w.swarm
	rarely := func(odds int) bool { return odds > 0 && w.rng.IntN(1<<16) < odds }
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if rarely(s.crash) {
		w.crash(n)
	}
	if leader := w.leader(); leader != nil && rarely(s.crash) {
		w.crash(leader)
	}
	if rarely(s.blackout) {
		w.faults[Blackouts]++
		for _, n := range w.nodes {
			n.crash(nil)
		}
	}
	if rarely(s.pause) && n.rn != nil && n.paused <= w.beat {
		w.faults[Paused]++
		n.paused = w.beat + 1 + w.rng.IntN(4*s.election*beats)
		w.plan(n.paused-w.beat, resumes, n)
	}
	if rarely(s.cut) {
		w.cuts(n)
	}
	if rarely(s.slow) {
		w.faults[Slow]++
		if n.slow = 0; w.rng.IntN(3) > 0 {
			n.slow = w.rng.IntN(3 * s.election * beats)
		}
	}
	if rarely(s.transfer) {
		w.transfer()
	}
	if rarely(s.change) {
		w.change()
	}
	if leader := w.leader(); leader != nil && leader.paused <= w.beat && rarely(s.quit) {
		w.faults[StepDowns]++
		w.events++
		leader.rn.StepDown(w.rng.IntN(3 * s.election))
		leader.moved()
	}
}

// crash crashes a node now, or at a stage of its next Ready.
func (w *world) crash(n *node) {
	if !w.swarm.async && w.rng.IntN(4) > 0 {
		n.tripAt = 1 + w.rng.IntN(3)
		return
	}
	n.crash(nil)
}

// cuts cuts links of a node, for some time.
func (w *world) cuts(n *node) {
	w.faults[Cut]++
	kind, i := w.rng.IntN(4), int(n.id-1)
	for j := range w.nodes {
		if j == i {
			continue
		}
		switch {
		case kind == 0: // in both directions
			w.cut[i][j], w.cut[j][i] = true, true
		case kind == 1:
			w.cut[i][j] = true
		case kind == 2:
			w.cut[j][i] = true
		case w.rng.IntN(2) == 0: // from some
			w.cut[i][j], w.cut[j][i] = true, true
		}
	}
	if w.trace != nil {
		w.trace("links of %d are cut (%d)", n.id, kind)
	}
	w.plan(1+w.rng.IntN(8*w.swarm.election*beats), reconnects, n)
}

func (w *world) transfer() {
	leader := w.leader()
	if leader == nil || leader.paused > w.beat {
		return
	}
	w.faults[Transfers]++
	w.events++
	target := 1 + w.rng.Uint64N(uint64(len(w.nodes)))
	err := leader.rn.TransferLeader(target)
	if w.trace != nil {
		w.trace("%d is to hand over to %d: %v", leader.id, target, err)
	}
	leader.moved()
}

// change proposes a change of members.
func (w *world) change() {
	leader := w.leader()
	if leader == nil || leader.paused > w.beat {
		return
	}
	one := func() raftpb.ConfChangeSingle {
		id := 1 + w.rng.Uint64N(uint64(len(w.nodes)))
		kind := raftpb.ConfChangeAddNode
		switch {
		case w.oracle.gone[id]:
			kind = raftpb.ConfChangeRemoveNode // an id is not given again
		case w.rng.IntN(3) == 0:
			kind = raftpb.ConfChangeAddLearnerNode
		case w.rng.IntN(3) == 0 && len(leader.conf.Voters) > 2:
			kind = raftpb.ConfChangeRemoveNode
		}
		if n := w.nodes[id-1]; kind != raftpb.ConfChangeRemoveNode && n.rn == nil && n.life == 0 {
			n.start()
		}
		return raftpb.ConfChangeSingle{Type: kind, NodeID: id}
	}
	var c raftpb.ConfChangeI
	switch w.rng.IntN(4) {
	case 0, 1:
		s := one()
		c = raftpb.ConfChange{Type: s.Type, NodeID: s.NodeID}
	case 2:
		c = raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransition(w.rng.IntN(3)), Changes: []raftpb.ConfChangeSingle{one(), one()}}
	default:
		c = raftpb.ConfChangeV2{} // leaves a joint configuration
	}
	w.faults[Changes]++
	w.events++
	err := leader.rn.ProposeConfChange(c)
	if w.trace != nil {
		w.trace("%d is to change its members, %+v: %v", leader.id, c, err)
	}
	leader.moved()
}
