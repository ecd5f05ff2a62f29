package core

import (
	"math/rand/v2"
	"strings"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// A liar drives terms. Now and then it chooses a member and tells it, tick after tick, terms as far ahead as
// that member believes, or farther, in the name of another member. Half of the time no other member is heard
// there meanwhile, so that the member comes back with a term that is far from all others. With the faults
// the liar ends. The members must come together again: no term goes down, so all come to the highest one.
type liar struct {
	w      *world
	rng    *rand.Rand
	victim *node
	until  int // beat
}

// termJump is what a member believes of one peer in a window (raft/farterm.go).
const termJump = 1 << 32

// strike is what the liar does in a tick.
func (l *liar) strike() {
	w := l.w
	election := w.swarm.election * beats
	if l.until <= w.beat {
		if l.rng.IntN(6*w.swarm.election) > 0 {
			return
		}
		l.victim = w.nodes[l.rng.IntN(len(w.nodes))]
		l.until = w.beat + 1 + l.rng.IntN(8*election)
		if l.rng.IntN(2) == 0 {
			i := l.victim.id - 1
			for j := range w.nodes {
				w.cut[i][j], w.cut[j][i] = true, true
			}
			w.plan(l.until-w.beat, reconnects, l.victim)
		}
	}
	n := l.victim
	as := w.nodes[l.rng.IntN(len(w.nodes))]
	if n.rn == nil || n.paused > w.beat || as == n {
		return
	}
	m := raftpb.Message{Type: raftpb.MsgAppResp, From: as.id, To: n.id, Term: n.term + 1 + l.rng.Uint64N(2*termJump)}
	w.events++
	err := n.rn.Step(m)
	if w.trace != nil {
		w.trace("%d hears of a liar %s %v", n.id, raft.DescribeMessage(m, nil), err)
	}
	n.input = &m
	n.moved()
}

// explains reports whether members refuse a message because a liar has driven its sender far ahead.
func (l *liar) explains(refused *raft.PeerError) bool {
	return l != nil && strings.HasPrefix(refused.Rule, "term is far")
}

// distance returns how far apart terms are, in half jumps.
func (w *world) distance() int {
	low, high := ^uint64(0), uint64(0)
	for _, n := range w.nodes {
		if n.life > 0 {
			low, high = min(low, n.disk.live.hs.Term), max(high, n.disk.live.hs.Term, n.term)
		}
	}
	return int((high - min(low, high)) / (termJump / 2))
}
