package core

import (
	"math/rand/v2"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/coverage"
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
	if rarely(s.blackout) && w.injects(coverage.MajorityCrash, nil) {
		w.faults[Blackouts]++
		for _, n := range w.nodes {
			n.crash(coverage.PowerCut, nil)
		}
	}
	if rarely(s.pause) {
		n.pause(1 + w.rng.IntN(4*s.election*beats))
	}
	if rarely(s.cut) {
		kind := w.rng.IntN(4)
		w.cutLinks(cutNames[kind], n, kind, 1+w.rng.IntN(8*s.election*beats))
	}
	if rarely(s.slow) {
		w.slow(n)
	}
	if rarely(s.transfer) {
		w.transfer(1 + w.rng.Uint64N(uint64(len(w.nodes))))
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
	w.strikeAside(n)
}

// strikeAside is what is drawn apart from the swarm: ends in good order, and backups.
func (w *world) strikeAside(n *node) {
	if w.side.IntN(200) == 0 && n.rn != nil && !n.leaving && n.paused <= w.beat && n.full <= w.beat {
		n.leave()
	}
	if w.side.IntN(20) == 0 && n.rn != nil && !n.forgot {
		n.disk.backup = n.disk.durable
	}
}

// cutNames are the faults that world.cutLinks calls 0 to 3.
var cutNames = [4]coverage.Fault{coverage.FullPartition, coverage.OneWayCut, coverage.OneWayCut, coverage.PartialCut}

// crash crashes a node now, or at a stage of its next Ready.
func (w *world) crash(n *node) {
	if !n.settings.async && w.rng.IntN(4) > 0 {
		n.tripAt = 1 + w.rng.IntN(3)
		return
	}
	n.crash(coverage.PowerCut, nil)
}

// slow makes a disk slower, or fast again.
func (w *world) slow(n *node) {
	by := 0
	if w.rng.IntN(3) > 0 {
		by = w.rng.IntN(3 * w.swarm.election * beats)
	}
	as := coverage.SlowDisk
	if by >= w.swarm.election*beats {
		as = coverage.HungDisk
	}
	if by > 0 && n.settings.async && !w.injects(as, n) {
		return
	}
	w.faults[Slow]++
	n.slow, n.slowUntil = by, 0
}

func (w *world) transfer(target uint64) bool {
	leader := w.leader()
	if leader == nil || leader.paused > w.beat {
		return false
	}
	if !w.injects(coverage.LeaderTransfer, leader, w.nodes[target-1]) {
		return true
	}
	w.faults[Transfers]++
	w.events++
	err := leader.rn.TransferLeader(target)
	if w.trace != nil {
		w.trace("%d is to hand over to %d: %v", leader.id, target, err)
	}
	leader.moved()
	return true
}

// single draws a change of one member.
func (w *world) single(leader *node, rng *rand.Rand) (c raftpb.ConfChangeSingle, as coverage.Fault) {
	return w.singleOf(1+rng.Uint64N(uint64(len(w.nodes))), leader, rng)
}

func (w *world) singleOf(id uint64, leader *node, rng *rand.Rand) (c raftpb.ConfChangeSingle, as coverage.Fault) {
	kind := raftpb.ConfChangeAddNode
	switch {
	case w.oracle.gone[id]:
		kind = raftpb.ConfChangeRemoveNode // an id is not given again
	case rng.IntN(3) == 0:
		kind = raftpb.ConfChangeAddLearnerNode
	case rng.IntN(3) == 0 && len(leader.conf.Voters) > 2:
		kind = raftpb.ConfChangeRemoveNode
	}
	if as = coverage.MemberAdd; kind == raftpb.ConfChangeRemoveNode {
		as = coverage.MemberRemove
	}
	return raftpb.ConfChangeSingle{Type: kind, NodeID: id}, as
}

// change proposes a change of members.
func (w *world) change() {
	leader := w.leader()
	if leader == nil || leader.paused > w.beat {
		return
	}
	switch w.rng.IntN(4) {
	case 0, 1:
		s, as := w.single(leader, w.rng)
		w.propose(leader, raftpb.ConfChange{Type: s.Type, NodeID: s.NodeID}, as, s)
	case 2:
		a, as := w.single(leader, w.rng)
		b, _ := w.single(leader, w.rng)
		w.propose(leader, raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransition(w.rng.IntN(3)), Changes: []raftpb.ConfChangeSingle{a, b}}, as, a, b)
	default:
		w.propose(leader, raftpb.ConfChangeV2{}, coverage.MemberRemove) // leaves a joint configuration
	}
}

// changeTo proposes a change that adds or removes a member, as asked; if it can be, the given one.
func (w *world) changeTo(f coverage.Fault, n *node, rng *rand.Rand) bool {
	leader := w.leader()
	if leader == nil || leader.paused > w.beat {
		return false
	}
	for k := range 16 {
		s, as := w.single(leader, rng)
		if k < 8 {
			s, as = w.singleOf(n.id, leader, rng)
		}
		isIn := isMember(&leader.conf, s.NodeID)
		if as != f || f == coverage.MemberRemove && !isIn {
			continue
		}
		var c raftpb.ConfChangeI = raftpb.ConfChange{Type: s.Type, NodeID: s.NodeID}
		if rng.IntN(2) == 0 {
			c = raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransitionJointExplicit, Changes: []raftpb.ConfChangeSingle{s}}
		}
		return w.propose(leader, c, as, s)
	}
	return false
}

// propose proposes a change, and starts the nodes that it adds.
func (w *world) propose(leader *node, c raftpb.ConfChangeI, as coverage.Fault, changes ...raftpb.ConfChangeSingle) bool {
	if w.anyForgot() {
		return false // see forget.go
	}
	var concerned []*node
	for _, s := range changes {
		concerned = append(concerned, w.nodes[s.NodeID-1])
	}
	if len(changes) > 0 && !w.injects(as, leader, concerned...) {
		return true
	}
	for _, s := range changes {
		if n := w.nodes[s.NodeID-1]; s.Type != raftpb.ConfChangeRemoveNode && n.rn == nil && n.life == 0 {
			n.start()
		}
	}
	w.faults[Changes]++
	w.events++
	err := leader.rn.ProposeConfChange(c)
	if w.trace != nil {
		w.trace("%d is to change its members, %+v: %v", leader.id, c, err)
	}
	leader.moved()
	if err == nil {
		w.changing, w.changes = max(w.changing, leader.last), len(changes)
	}
	return true
}
