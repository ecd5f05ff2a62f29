package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/coverage"
	"github.com/millrace/millrace/sim/property"
)

// A process may pause: it is stopped, swapped out, its machine is suspended or collects garbage. Its clock
// continues, messages to it wait in the kernel, and then everything happens at once.

// pauseOne pauses a process for a while.
func (n *nemesis) pauseOne() { n.pause(n.anyHost()) }

// pauseFollower pauses a host that does not lead, if all others run: a leader without a quorum must step
// down.
func (n *nemesis) pauseFollower() {
	for _, h := range n.w.hosts {
		if h.pausedUntil > n.w.now {
			return
		}
	}
	if h := n.anyHost(); h.alive != nil && h.alive.process != nil && !slices.ContainsFunc(h.alive.replicas, (*replica).leads) {
		n.pause(h)
	}
}

func (n *nemesis) pause(h *machine) { n.pauseFor(h, between(n.rng, 0, 5*n.w.config.ElectionTimeout)) }

func (n *nemesis) pauseFor(h *machine, by time.Duration) {
	if !n.w.injects(coverage.Pause, h) {
		return
	}
	n.w.count(Pauses)
	h.pausedUntil = n.w.now + by
	n.w.record(fmt.Sprintf("host %d is paused until %v", h.id, h.pausedUntil))
}

// paused delays an event of a paused process until the pause ends, behind the events that wait already.
func (w *world) paused(e appointment) bool {
	if e.who == nil || e.who.host.pausedUntil <= w.now {
		return false
	}
	e.at = e.who.host.pausedUntil
	w.push(e)
	return true
}

// onlyPauses makes paused followers the only fault. Then the first leader stays, and no host even asks
// whether to campaign (unless leaders are placed, and may hand over to a host that pauses): the follower
// finds the leader's heartbeats waiting when it continues, and the time that it missed does not count as time
// without a leader.
func (n *nemesis) onlyPauses() {
	n.calm, n.hunts, n.w.reads.mayStop = true, 0, 0
	n.w.net.drop, n.w.net.duplicate, n.w.net.corrupt, n.w.net.slowest = 0, 0, 0, time.Millisecond
	n.acts = []func(){n.pauseFollower}
}

// checkCalm: no host starts an election when only followers have paused. It is called for every message. An
// election is under way until all hosts have heard its result; two timeouts are enough for that.
func (n *nemesis) checkCalm(l *life, m *raftpb.Message) {
	if !n.calm || n.isQuiet() || n.w.placing != nil || m.Type != raftpb.MsgPreVote || n.firstLeader == 0 || n.w.now < n.firstLeader+2*n.w.config.ElectionTimeout {
		return
	}
	n.w.breaks(property.Calm, "%s sends a pre-vote although its leader is well: only followers have paused", l.name)
}
