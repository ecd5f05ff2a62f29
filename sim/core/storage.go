package core

import (
	"errors"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/coverage"
)

// storage is what is wrong with a node's disk, besides that it is slow. A node whose disk returns an error
// ends at once, and starts again later: an error of a sync or of a read is final for a process (raft/doc.go).
type storage struct {
	// armed is a strike that makes the next sync fail, or the next read of entries by the core or by the
	// apply worker; nil: none.
	armed      *strike
	readFailed bool // in this life

	// full is the beat until which the disk takes no entries. raised is the newest term and vote that have
	// overtaken what waits.
	full   int
	raised raftpb.HardState

	// forgot says that the disk may lack what the node has promised, so that it runs without authority.
	forgot bool

	lateAnswers int // beats that the answers of its workers take longer at most,
	lateUntil   int // until this beat
}

var errRead = errors.New("the disk cannot read")

func (s *storage) ends() {
	*s = storage{full: s.full, forgot: s.forgot}
}

// answersLater draws how much longer an answer takes. Answers are so late that later ones arrive before them.
func (n *node) answersLater() int {
	if n.lateUntil <= n.w.beat {
		return 0
	}
	return n.w.side.IntN(n.lateAnswers)
}

// fails reports whether a strike makes this operation fail, which is a sync or a read.
func (n *node) fails(f coverage.Fault) bool {
	if n.armed == nil || n.armed.cell.Fault != f {
		return false
	}
	n.armed.done, n.armed = true, nil
	return true
}

// failsToRead reports whether a read fails.
func (n *node) failsToRead() bool {
	n.readFailed = n.readFailed || n.armed != nil && n.fails(coverage.ReadError) && n.w.injects(coverage.ReadError, n)
	return n.readFailed
}

// failSync makes a sync fail. What was written may be durable or not.
func (n *node) failSync(queued []raftpb.Message) bool {
	return n.fails(coverage.SyncError) && n.crash(coverage.SyncError, queued)
}

// failRead ends a node that could not read its log.
func (n *node) failRead() {
	if n.rn == nil || !n.readFailed {
		return
	}
	w := n.w
	if w.trace != nil {
		w.trace("%d ends: it cannot read its log", n.id)
	}
	rng := w.ofInjection()
	queued := n.underWay()
	if n.installing {
		queued = nil // they are behind the snapshot, which is not written
	}
	n.disk.lose(queued, len(n.disk.unsynced), false, rng, w.bug)
	n.ends()
	w.plan(1+rng.IntN(20*beats), restarts, n)
}

// rejectForSpace is called before a write while the disk is full. It reports whether the write waits. Then
// term and vote overtake it, with the answers that concern only them (raft/doc.go, "A full disk may be
// overtaken by a vote").
func (n *node) rejectForSpace() bool {
	first := &n.appends[0]
	if len(first.Entries) == 0 && first.Snapshot == nil {
		return false
	}
	var newest raftpb.HardState
	var early []raftpb.Message
	for i := range n.appends {
		m := &n.appends[i]
		if m.Term != 0 {
			newest = raftpb.HardState{Term: m.Term, Vote: m.Vote}
		}
		early = append(early, splitEarly(n.id, m)...)
	}
	switch {
	case newest.Term != 0 && (newest.Term != n.raised.Term || newest.Vote != n.raised.Vote):
		n.raised = newest
		hard := raftpb.Message{Term: newest.Term, Vote: newest.Vote, Commit: n.disk.live.hs.Commit}
		n.w.events++
		n.disk.do(&hard, true)
	case len(early) > 0:
		n.disk.sync() // they may speak of a write before, which did not have to be durable yet
	}
	n.release(early)
	return true
}

// hasSpace is called when the disk takes entries again.
func (n *node) hasSpace() {
	if n.full > n.w.beat {
		return // it was filled again
	}
	n.full = 0
	if n.rn != nil {
		n.beginWrite()
	}
}

// splitEarly removes from a write the answers that may overtake it, and returns them. The array of the
// answers is the core's.
func splitEarly(self uint64, m *raftpb.Message) (early []raftpb.Message) {
	var kept []raftpb.Message
	for _, r := range m.Responses {
		overtakes := r.Type == raftpb.MsgVoteResp || r.Type == raftpb.MsgPreVoteResp || r.Type == raftpb.MsgAppResp && r.Index == 0 && !r.Reject
		if overtakes && r.To != self {
			early = append(early, r)
		} else {
			kept = append(kept, r)
		}
	}
	if len(early) > 0 {
		m.Responses = kept
	}
	return early
}

// underWay returns the writes of which a crash may leave something: a full disk has taken none of them.
func (n *node) underWay() []raftpb.Message {
	if n.full > n.w.beat {
		return nil
	}
	for i := range n.appends {
		n.raise(&n.appends[i])
	}
	return n.appends
}

// raise gives a write that was overtaken the term and vote that overtook it: these never go back.
func (n *node) raise(m *raftpb.Message) {
	if m.Term == 0 || n.raised.Term == 0 {
		return
	}
	if m.Term < n.raised.Term || m.Term == n.raised.Term && m.Vote == 0 {
		m.Term, m.Vote = n.raised.Term, n.raised.Vote
	}
}

// regain gives a node authority again when its leader has said that it may have it.
func (n *node) regain() {
	if n.forgot && n.rn != nil && n.rn.MayRegain() {
		n.rn.Regain()
		n.forgot = false
		n.w.faults[Regained]++
		if n.w.trace != nil {
			n.w.trace("%d has authority again", n.id)
		}
	}
}
