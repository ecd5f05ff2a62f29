package raft

import (
	"github.com/millrace/millrace/raft/raftpb"
)

// handleAppendEntries is the receiver's half of AppendEntries (thesis figure 3.1). The acknowledgement names what has
// been verified against this leader's log, leaves only once that is durable, and is never more than that.
func (r *raft) handleAppendEntries(from uint64, a appendEntries) error {
	if err := r.implausibleAppend(from, a); err != nil {
		return err
	}
	if a.prev.Index < r.log.committed {
		// A stale duplicate. What is committed here is in every leader's log, so it can be acknowledged.
		if committed := r.log.committed; !r.answerWaits(from, committed) {
			r.acknowledge(from, committed)
		}
		return nil
	}
	if !r.log.matches(a.prev) {
		r.rejectAppend(from, a.prev)
		return nil
	}
	fresh := a.entries[r.log.firstConflict(a.entries):] // after prev, so after all that is committed
	r.log.append(fresh, r.term)
	verified := a.prev.Index + uint64(len(a.entries))
	commit := min(a.commit, verified)
	saysNothingNew := commit <= r.log.committed && r.answerWaits(from, verified)
	if r.log.commitTo(commit); !saysNothingNew {
		r.acknowledge(from, verified)
	}
	return nil
}

// acknowledgement is what a leader was told, or will be when it is durable: that this log is its own through index.
type acknowledgement struct{ term, to, index uint64 }

// answerWaits reports whether the leader will be told that the log is its own through index when a write is done that was
// handed out before. While it lacks that answer it asks again after every heartbeat, and each answer would be a write: a
// follower whose disk hangs would queue them without end.
//
// The answer that waits may be lost when it leaves. Entry index is acknowledged by the append worker then, so that the
// leader is answered when it asks again.
func (r *raft) answerWaits(leader, index uint64) bool {
	waits := r.out.ackHandedOut
	return waits.term == r.term && waits.to == leader && index <= waits.index && index >= r.log.unstable.offset
}

// acknowledge tells the leader, when it is durable, that the log is its own through index.
func (r *raft) acknowledge(to, index uint64) {
	r.send(raftpb.Message{Type: raftpb.MsgAppResp, To: to, Index: index})
	r.out.ack = acknowledgement{r.term, to, index}
}

// implausibleAppend refuses what no leader sends: entries that are not contiguous after prev, with falling terms, of a
// later term than the leader's, or others than are committed here. The last comes from a quorum that was restored
// from a backup; to acknowledge it would let two state machines part in silence.
func (r *raft) implausibleAppend(from uint64, a appendEntries) error {
	index, term := a.prev.Index, a.prev.Term
	for i := range a.entries {
		e := &a.entries[i]
		switch {
		case e.Index != index+1:
			return &PeerError{From: from, Rule: "entries of an append are not contiguous", Have: e.Index, Want: index + 1}
		case e.Term < max(term, 1):
			return &PeerError{From: from, Rule: "terms within an append fall", Have: e.Term, Want: max(term, 1)}
		}
		index, term = e.Index, e.Term
	}
	if term > r.term {
		return &PeerError{From: from, Rule: "an entry is of a later term than its leader", Have: term, Want: r.term}
	}
	if r.log.contradictsCommitted(a.prev) {
		return &PeerError{From: from, Rule: "it contradicts a committed entry", Have: a.prev.Index, Want: r.log.committed + 1}
	}
	for i := 0; i < len(a.entries) && a.entries[i].Index <= r.log.committed; i++ {
		if e := &a.entries[i]; r.log.contradictsCommitted(e.ID()) {
			return &PeerError{From: from, Rule: "it contradicts a committed entry", Have: e.Index, Want: r.log.committed + 1}
		}
	}
	return nil
}

// rejectAppend tells the leader that prev does not match, and where to try next: the last entry at or below prev whose
// term is not above prev's, so that each round skips a whole term (thesis §3.5, last paragraph).
func (r *raft) rejectAppend(from uint64, prev raftpb.EntryID) {
	hint := r.log.lastNotAfter(min(prev.Index, r.log.lastIndex()), prev.Term)
	r.send(raftpb.Message{
		Type:       raftpb.MsgAppResp,
		To:         from,
		Index:      prev.Index,
		Reject:     true,
		RejectHint: hint.Index,
		LogTerm:    hint.Term,
	})
}

// handleHeartbeat advances the commit index; the leader capped it at what this node has acknowledged.
func (r *raft) handleHeartbeat(from, commit uint64, context []byte) error {
	if last := r.log.lastIndex(); commit > last {
		return &PeerError{From: from, Rule: "its commit index is beyond entries that this node acknowledged; this node has lost its log", Have: last, Want: commit}
	}
	r.log.commitTo(commit)
	if !r.remembersPromise() {
		context = nil
	}
	r.send(raftpb.Message{Type: raftpb.MsgHeartbeatResp, To: from, Context: context})
	return nil
}

// handleProposal takes commands: a leader appends them, a follower hands them to the leader it knows.
func (r *raft) handleProposal(m *raftpb.Message) error {
	switch {
	case r.role == StateLeader:
		return r.propose(m.Entries)
	case r.role == StateFollower && r.lead != None && r.cfg.forwardProposals:
		forward := *m
		forward.To, forward.From, forward.Term = r.lead, None, 0
		r.send(forward)
		return nil
	default:
		return ErrProposalDropped
	}
}
