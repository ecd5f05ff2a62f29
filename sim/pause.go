package sim

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// A process may stand still: it is stopped, swapped out, its machine is suspended or collects garbage. Its clock goes on, what
// is sent to it waits where the kernel keeps it, and then everything happens at once.

// pauseOne stops a process for a while.
func (n *nemesis) pauseOne() { n.pause(n.anyHost()) }

// pauseFollower stops one that does not lead, if all others run: a leader without a quorum must step down.
func (n *nemesis) pauseFollower() {
	for _, h := range n.w.hosts {
		if h.pausedUntil > n.w.now {
			return
		}
	}
	if h := n.anyHost(); h.alive != nil && h.alive.process.Group().Status().Role != raft.StateLeader {
		n.pause(h)
	}
}

func (n *nemesis) pause(h *server) {
	n.w.count(Pauses)
	h.pausedUntil = n.w.now + between(n.rng, 0, 5*n.w.config.ElectionTimeout)
	n.w.note(fmt.Sprintf("host %d stands still until %v", h.id, h.pausedUntil))
}

// paused puts an event of a process that stands still off until it goes on, behind those that wait already.
func (w *world) paused(e event) bool {
	if e.who == nil || e.who.host.pausedUntil <= w.now {
		return false
	}
	e.at = e.who.host.pausedUntil
	w.push(e)
	return true
}

// onlyPauses makes followers that stand still all that goes wrong. Then the first leader stays, and nobody even asks whether
// to campaign: the leader's heartbeats wait where a follower that goes on hears them first, and the time that it has missed
// is no time without a leader.
func (n *nemesis) onlyPauses() {
	n.calm, n.hunts = true, 0
	n.w.net.drop, n.w.net.duplicate, n.w.net.corrupt, n.w.net.slowest = 0, 0, 0, time.Millisecond
	n.acts = []func(){n.pauseFollower}
}

// checkCalm is told of every message. An election is under way until all have heard of its end: two timeouts are enough.
func (n *nemesis) checkCalm(i *incarnation, m *raftpb.Message) {
	if !n.calm || n.stopped || m.Type != raftpb.MsgPreVote || n.firstLeader == 0 || n.w.now < n.firstLeader+2*n.w.config.ElectionTimeout {
		return
	}
	n.w.violate("%s asks whether to campaign, although nothing is wrong with its leader: only followers have stood still", i.name)
}
