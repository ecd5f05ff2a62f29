package core

import (
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/sim/property"
)

// What a leader holds for others is bounded: the commands of its term that are not applied have no more bytes
// than Config.MaxUncommittedEntriesSize, and one command (thesis §10.2). Checked after each input of a
// leader; a command has 8 bytes at least.
//
// When the faults have ended, agreement costs a bounded number of messages, terms and snapshots: a cluster
// that works hard and agrees on nothing is broken, too (§3.9). Checked at the end.

// bounded checks the commands of a leader.
func (o *oracle) bounded(n *node, st *raft.BasicStatus) {
	if !n.leads || n.term != st.Term {
		n.ledFrom = st.LastIndex // what is there already is of earlier terms
		return
	}
	waiting := st.LastIndex - min(max(st.Applied, n.ledFrom), st.LastIndex)
	if most := n.settings.uncommitted + slackBytes; 8*waiting > most {
		violate(property.Memory, "node %d leads term %d, and %d commands of its term are not applied, which is more than %d bytes", n.id, st.Term, waiting, most)
	}
}

// slackBytes are for one command above the limit, and for entries without bytes.
const slackBytes = 512

// spent is what nodes have sent.
type spent struct{ messages, snapshots uint64 }

// work is what a cluster has to do when the faults end: entries that members lack, and members.
type work struct {
	spent
	entries, members, term uint64
}

// workLeft is called when the faults end.
func (w *world) workLeft() work {
	left := work{spent: w.sent, members: uint64(len(w.nodes))}
	var last uint64
	for _, n := range w.nodes {
		last = max(last, n.last, n.disk.live.last())
		left.term = max(left.term, n.term, n.disk.live.hs.Term)
	}
	for _, n := range w.nodes {
		if n.life > 0 {
			left.entries += last - min(last, min(n.applied, n.disk.live.last()))
		}
	}
	return left
}

// What the work may cost at most, for each ordered pair of nodes and each tick, and for each entry that a
// member lacks. Messages are not counted in a network that changes their order, which a transport does not:
// an append that overtakes another one is refused there, and the leader sends its window again, so that an
// entry may cost some windows (seeds 1500, 1611 and 3148).
const (
	maxMessages       = 40 // for each pair and tick, and for each entry; besides the window
	ticksOfASnapshot  = 4  // each node may get one in this time
	termsAfterFaults  = 8  // and two in each election timeout
	ticksOfWhatIsLate = 10 // added to the time, for what was under way
)

// cheaply checks that the work was done with few messages, snapshots and terms.
func (o *oracle) cheaply(left *work, ticks int) {
	w := o.w
	messages, snapshots, terms := w.sent.messages-left.messages, w.sent.snapshots-left.snapshots, max(w.leader().term, left.term)-left.term
	took := uint64(ticks) + ticksOfWhatIsLate
	for _, of := range []struct {
		what       string
		used, most uint64
	}{
		{"messages", messages, maxMessages*left.members*left.members*took + (maxMessages+uint64(w.window()))*left.entries},
		{"snapshots", snapshots, left.members * (1 + took/ticksOfASnapshot)},
		{"terms", terms, termsAfterFaults + 2*uint64(ticks/w.swarm.election)},
	} {
		if of.used > of.most && (w.swarm.delay == 0 || of.what != "messages") {
			violate(property.Cost, "in %d ticks after the faults %d nodes that lacked %d entries took %d %s to agree, want at most %d", ticks, left.members, left.entries, of.used, of.what, of.most)
		}
	}
}

// window is the most appends to a follower that may be on their way, in any version.
func (w *world) window() (most int) {
	for _, n := range w.nodes {
		most = max(most, n.settings.inflight)
	}
	return most
}
