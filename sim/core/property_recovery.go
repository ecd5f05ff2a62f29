package core

import (
	"fmt"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/sim/property"
)

// When the faults have ended, everything must be in order again within some election timeouts, counted from
// when the last message that was late arrives, and the time that it takes to replicate what leaders have
// appended and not committed.
const healTimeouts = 30

// climbTimeouts is how many election timeouts a step takes towards the term of a member that a liar has
// driven away: a window of two, and an election.
const climbTimeouts = 4

// backlog returns how many ticks it takes to replicate the longest log, a window of messages in each round,
// and to apply it. In runs with mixed versions any of them may lead.
func (w *world) backlog() int {
	s, have, has, last := w.swarm, uint64(1<<63), uint64(1<<63), uint64(0)
	for _, n := range w.nodes {
		if n.life > 0 {
			s.inflight, s.perMessage = min(s.inflight, n.settings.inflight), min(s.perMessage, n.settings.perMessage)
			have, has, last = min(have, n.disk.live.last(), n.commit), min(has, n.applied), max(last, n.disk.live.last(), n.last)
		}
	}
	messages, applications := int(last-have), int(last-has)
	if s.perMessage >= 1<<10 {
		messages /= 8
	}
	round := 2*s.delay + 2*s.write + s.apply + s.answer + 4
	return (messages*round/min(s.inflight, 16) + applications*(s.apply+s.answer+2)) / beats
}

// healing is what counts for the end of a run.
type healing struct {
	reads   uint64 // reads with this number or a higher one were asked after the faults
	entries uint64 // how many were committed when they ended
	read    []bool // by node: it had an answer to such a read
}

// heal ends the faults, and demands that the cluster elects, commits, answers reads and agrees.
func (w *world) heal() {
	w.healing = true
	w.bursts = bursts{}
	if w.trace != nil {
		w.trace("the faults end")
	}
	for i := range w.cut {
		clear(w.cut[i])
	}
	for _, n := range w.nodes {
		n.slow, n.tripAt, n.paused = 0, 0, min(n.paused, w.beat+1)
		n.armed, n.lateUntil = nil, 0
		n.full = min(n.full, w.beat)
		n.hasSpace()
		if n.rn == nil && n.life > 0 {
			n.start()
		}
	}
	w.end = healing{uint64(len(w.oracle.asked)), uint64(len(w.oracle.ghost)), make([]bool, len(w.nodes))}
	begin, left := w.beat, w.workLeft()
	limit := healTimeouts*w.swarm.election + max(w.swarm.lateness, w.swarm.write)/beats + w.backlog()
	if w.liar != nil {
		limit += w.distance() * climbTimeouts * w.swarm.election
	}
	for w.beat < begin+limit*beats {
		w.step()
		w.endRemoved()
		if w.beat%beats == 0 && w.agree() {
			w.ticks = (w.beat - begin) / beats
			w.oracle.cheaply(&left, w.ticks)
			return
		}
	}
	what := ""
	for _, n := range w.nodes {
		if n.rn != nil {
			st := n.rn.BasicStatus()
			what += fmt.Sprintf("\n%d: %s %s, applied %d of %d, has read: %t, members %s", n.id, raft.DescribeSoftState(st.SoftState), raft.DescribeHardState(st.HardState),
				n.applied, st.LastIndex, w.end.read[n.id-1], raft.DescribeConfState(n.conf))
		}
	}
	w.violate(property.Recovery, "the faults have ended %d ticks ago, and the cluster does not agree:%s", limit, what)
}

// askAll asks every node for a read, and the leader for a command.
func (w *world) askAll() {
	for _, n := range w.nodes {
		n.read()
	}
	if leader := w.leader(); leader != nil {
		leader.propose(1)
	}
}

// healed notes the answer to a read.
func (w *world) healed(n *node, number uint64) {
	if w.healing && number >= w.end.reads {
		w.end.read[n.id-1] = true
	}
}

// agree reports whether all members have applied the same, a command of this time among it, and have read.
func (w *world) agree() bool {
	leader := w.leader()
	if leader == nil || leader.commit <= w.end.entries {
		return false
	}
	for _, n := range w.nodes {
		if !isMember(&leader.conf, n.id) {
			continue
		}
		if n.rn == nil || n.forgot || n.term != leader.term || n.applied <= w.end.entries || n.sum != w.oracle.stateAt(n.applied) || !w.end.read[n.id-1] {
			return false
		}
	}
	return true
}

// endRemoved ends nodes that are no members any more. One that has not heard of it campaigns for ever, and
// without the check of the quorum the members listen (thesis §4.2.3): then an operator has to end it.
func (w *world) endRemoved() {
	if w.swarm.checkQuorum || w.beat%beats != 0 {
		return
	}
	for _, n := range w.nodes {
		if n.rn != nil && w.oracle.gone[n.id] && !isMember(&w.oracle.confs[len(w.oracle.confs)-1].conf, n.id) {
			n.ends()
		}
	}
}
