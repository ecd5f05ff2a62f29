package core

import (
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/coverage"
)

// hit makes a fault hit a node, or links of it, or the cluster. It reports false if the fault cannot come
// now. What is drawn before world.injects is asked comes from the source of the strikes, and what is drawn
// behind it from a source of its own, so that a fault that is left out changes no draw.
func (w *world) hit(f coverage.Fault, n *node) bool {
	election := w.swarm.election * beats
	switch f {
	case coverage.Crash, coverage.PowerCut:
		n.crash(f, nil)
	case coverage.TornWrite:
		if len(n.appends)+len(n.disk.unsynced) == 0 {
			return false
		}
		n.crash(f, nil)
	case coverage.Pause:
		return n.pause(1 + w.side.IntN(4*election))
	case coverage.MajorityCrash:
		w.crashMajority(n)
	case coverage.OneWayCut:
		w.cutLinks(f, n, 1+w.side.IntN(2), 1+w.side.IntN(4*election))
	case coverage.PartialCut:
		w.cutLinks(f, n, 3, 1+w.side.IntN(4*election))
	case coverage.FullPartition:
		w.cutLinks(f, n, 4*w.side.IntN(2), 1+w.side.IntN(4*election))
	case coverage.DropBurst, coverage.DuplicateBurst, coverage.ReorderBurst, coverage.LongDelay:
		w.burst(f, n)
	case coverage.CorruptFrame:
		w.corrupt(n)
	case coverage.SlowDisk:
		return n.slowDown(f, 1+w.side.IntN(election))
	case coverage.HungDisk:
		return n.slowDown(f, election+w.side.IntN(2*election))
	case coverage.FullDisk:
		return n.fill(1 + w.side.IntN(6*election))
	case coverage.LostSync:
		return n.loseSync()
	case coverage.BitFlip:
		return n.flipBit()
	case coverage.MisdirectedWrite:
		return n.misdirect()
	case coverage.LostDisk:
		return n.loseDisk()
	case coverage.RestoredDisk:
		return n.restore()
	case coverage.ReorderedCompletion:
		until, by := w.beat+1+w.side.IntN(2*election), 2+w.side.IntN(4*beats)
		if w.injects(f, n) {
			n.lateAnswers, n.lateUntil = by, until
		}
	case coverage.ClockJump:
		return n.jump(1 + w.side.IntN(3*w.swarm.election))
	case coverage.ClockDrift:
		return n.drift()
	case coverage.MemberAdd:
		return w.swarm.members && w.changeTo(f, n, w.side)
	case coverage.MemberRemove:
		return w.swarm.members && w.changeTo(f, n, w.side)
	case coverage.LeaderTransfer:
		return w.transfer(n.id)
	case coverage.ProposalFlood:
		return w.flood(n)
	}
	return true
}

func (n *node) pause(by int) bool {
	if n.rn == nil || n.paused > n.w.beat {
		return false
	}
	if n.w.injects(coverage.Pause, n) {
		n.w.faults[Paused]++
		n.paused = n.w.beat + by
		n.w.plan(by, resumes, n)
	}
	return true
}

// crashMajority crashes a majority of the nodes that run, with the given one.
func (w *world) crashMajority(n *node) {
	perm := w.side.Perm(len(w.nodes))
	if !w.injects(coverage.MajorityCrash, n) {
		return
	}
	w.faults[Blackouts]++
	most := len(w.nodes)/2 + 1
	n.crash(coverage.PowerCut, nil)
	for _, i := range perm {
		if most--; most > 0 {
			w.nodes[i].crash(coverage.PowerCut, nil)
		}
	}
}

// slowDown makes each write of a node take longer, for a while. In synchronous mode writes take no time.
func (n *node) slowDown(f coverage.Fault, by int) bool {
	if !n.settings.async {
		return false
	}
	w := n.w
	until := w.beat + by + w.side.IntN(4*w.swarm.election*beats)
	if w.injects(f, n) {
		w.faults[Slow]++
		n.slow, n.slowUntil = by, until
	}
	return true
}

func (n *node) fill(by int) bool {
	w := n.w
	if !n.settings.async || n.full > w.beat {
		return false
	}
	if w.injects(coverage.FullDisk, n) {
		w.faults[Full]++
		n.full = w.beat + by
		w.plan(by, space, n)
	}
	return true
}

// jump makes a node's clock jump forward. A lease rests on clocks that do not.
func (n *node) jump(by int) bool {
	if n.w.swarm.leases || n.paused > n.w.beat || n.full > n.w.beat {
		return false
	}
	if n.w.injects(coverage.ClockJump, n) {
		n.w.faults[Jumps]++
		n.w.events++
		n.rn.TickN(by)
		n.moved()
	}
	return true
}

// drift makes a node's clock run at another rate. A lease rests on clocks that run at about the same rate.
func (n *node) drift() bool {
	if n.w.swarm.leases {
		return false
	}
	tick := beats + n.w.side.IntN(9) - 3
	if n.w.injects(coverage.ClockDrift, n) {
		n.w.faults[Drifting]++
		n.tick = tick
		n.phase = n.w.beat % n.tick
	}
	return true
}

// flood proposes many more commands than a leader takes.
func (w *world) flood(n *node) bool {
	leader := w.leader()
	if n.paused > w.beat {
		return false
	}
	count := 32 + w.side.IntN(64)
	if !w.injects(coverage.ProposalFlood, n) {
		return true
	}
	w.faults[Floods]++
	n.propose(count)
	if leader != nil && leader != n {
		leader.propose(count)
	}
	return true
}

// cutLinks cuts links of a node, for some time: 0 all of it, 1 those from it, 2 those to it, 3 some, 4
// divides the cluster into two halves.
func (w *world) cutLinks(f coverage.Fault, n *node, kind, duration int) {
	i := int(n.id - 1)
	cut := make([][2]int, 0, 2*len(w.nodes))
	both := func(a, b int) { cut = append(cut, [2]int{a, b}, [2]int{b, a}) }
	side := make([]bool, len(w.nodes))
	for j := range w.nodes {
		side[j] = w.side.IntN(2) == 0
	}
	side[i] = true
	for j := range w.nodes {
		switch {
		case kind == 4:
			for k := range j {
				if side[j] != side[k] {
					both(j, k)
				}
			}
		case j == i:
		case kind == 0:
			both(i, j)
		case kind == 1:
			cut = append(cut, [2]int{i, j})
		case kind == 2:
			cut = append(cut, [2]int{j, i})
		case side[j]:
			both(i, j)
		}
	}
	if !w.injects(f, n) {
		return
	}
	w.faults[Cut]++
	for _, c := range cut {
		w.cut[c[0]][c[1]] = true
	}
	for j := range side {
		w.plan(duration, reconnects, w.nodes[j])
		if kind != 4 {
			w.plan(duration, reconnects, n)
			break
		}
	}
}

// corrupt flips bits of a frame from a node to another one. Its checksum ends the connection, and what the
// connection carried is lost.
func (w *world) corrupt(n *node) {
	to := w.nodes[w.side.IntN(len(w.nodes))]
	if !w.injects(coverage.CorruptFrame, n) {
		return
	}
	w.faults[Corrupted]++
	w.disconnect(func(m *raftpb.Message) bool { return m.From == n.id && m.To == to.id && m.Type != raftpb.MsgSnap })
	if n.rn != nil && to != n {
		n.rn.ReportUnreachable(to.id)
		n.moved()
	}
}
