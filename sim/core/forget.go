package core

import (
	"math/rand/v2"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/coverage"
)

// Some faults make a disk lack what its node has promised: a sync that lied before a power cut, bits that
// flip, a write that went to another place, a disk that is restored from a backup, or replaced by an empty
// one. A checksum, a repair or an operator tells, so the node comes back without authority
// (decision 0021), and terms and votes may be missing too. Nothing that was
// committed may be lost by it.
//
// At most a minority of the voters may be without authority at once, and no change of members begins
// meanwhile: two members of which one has no authority can commit nothing. All others know durably of the
// last change. While a change is under way, only a learner may forget.

// forget ends a node, and starts it later from an image of its disk that lacks something.
func (n *node) forget(f coverage.Fault, lost func(*image, *rand.Rand) image) bool {
	w := n.w
	if !w.mayForget(n) {
		return false
	}
	if !w.injects(f, n) {
		return true
	}
	w.faults[Forgot]++
	rng := w.ofInjection()
	n.disk.lose(n.underWay(), len(n.disk.unsynced), false, rng, 0)
	img := lost(&n.disk.durable, rng)
	n.disk.durable = img.clone()
	n.disk.durable.hs.Commit = min(n.disk.durable.hs.Commit, n.disk.durable.last())
	n.disk.live = n.disk.durable.clone()
	n.disk.synced, n.disk.backup = image{}, image{} // its next disk has none yet
	n.ends()
	n.forgot, n.applied, n.vote = true, 0, raftpb.HardState{}
	if w.trace != nil {
		w.trace("%d has forgotten something: %+v, log from %d to %d", n.id, n.disk.durable.hs, n.disk.durable.base.Index+1, n.disk.durable.last())
	}
	w.disconnect(func(m *raftpb.Message) bool { return m.From == n.id })
	w.plan(1+rng.IntN(20*beats), restarts, n)
	return true
}

// disconnect loses messages that are under way: the connections that carry them have ended. A node that is
// back without authority has met all others on new ones.
func (w *world) disconnect(which func(*raftpb.Message) bool) {
	for i := range w.planned {
		for _, e := range w.planned[i] {
			if e.what == arrives && which(&e.message) {
				e.what = cancelled
			}
		}
	}
}

// mayForget reports whether the cluster must survive that a node forgets something.
func (w *world) mayForget(n *node) bool {
	leader := w.leader()
	if n.rn == nil || n.life == 0 || leader == nil || len(leader.conf.Voters) < 3 || !isMember(&leader.conf, n.id) {
		return false
	}
	if leader.applied < w.changing || len(leader.conf.VotersOutgoing) > 0 {
		return w.changes == 1 && isIn(leader.conf.Learners, n.id) && !w.anyForgot()
	}
	without := 1
	for _, other := range w.nodes {
		if other != n && other.forgot {
			without++
		} else if isMember(&leader.conf, other.id) && other.disk.durable.hs.Commit < w.changing {
			return false // it may come back with a configuration in which n alone is a majority
		}
	}
	return without <= (len(leader.conf.Voters)-1)/2
}

// anyForgot reports whether a node is without authority, or will be when it starts.
func (w *world) anyForgot() bool {
	for _, n := range w.nodes {
		if n.forgot {
			return true
		}
	}
	return false
}

// loseSync is a disk whose last sync was a lie.
func (n *node) loseSync() bool {
	if n.disk.synced.hs.Term == 0 || n.disk.synced.base.Index < n.disk.durable.base.Index {
		return false // there was none in this life, or it is in the snapshot
	}
	return n.forget(coverage.LostSync, func(*image, *rand.Rand) image { return n.disk.synced })
}

// flipBit is a bit of the log that flips: entries from there on are lost, and at times terms and votes.
func (n *node) flipBit() bool {
	return n.forget(coverage.BitFlip, func(d *image, rng *rand.Rand) image { return d.until(rng, len(d.entries), rng.IntN(4) == 0) })
}

// misdirect is the last write that went to a place further in front: it is missing, and what was there is
// too.
func (n *node) misdirect() bool {
	return n.forget(coverage.MisdirectedWrite, func(d *image, rng *rand.Rand) image {
		kept := len(d.entries)
		if last := n.disk.synced; last.hs.Term != 0 && last.base == d.base {
			kept = min(kept, len(last.entries))
		}
		return d.until(rng, kept, true)
	})
}

// until returns an image with n entries at most, and all through the snapshot. A lost hard state is the
// oldest one that the rest allows.
func (d *image) until(rng *rand.Rand, most int, hardState bool) image {
	img := *d
	least := int(d.snapshot.Metadata.Index - d.base.Index)
	kept := least
	if most > least {
		kept += rng.IntN(most - least + 1)
	}
	img.entries = d.entries[:kept:kept]
	if hardState {
		term, _ := img.term(img.last())
		img.hs = raftpb.HardState{Term: max(term, img.snapshot.Metadata.Term), Commit: min(d.hs.Commit, img.last())}
	}
	return img
}

// restore is a disk that is as it was when a backup was made.
func (n *node) restore() bool {
	if n.disk.backup.hs.Term == 0 {
		return false
	}
	return n.forget(coverage.RestoredDisk, func(*image, *rand.Rand) image { return n.disk.backup })
}

// loseDisk is an empty disk in place of the node's.
func (n *node) loseDisk() bool {
	return n.forget(coverage.LostDisk, func(*image, *rand.Rand) image { return image{} })
}
