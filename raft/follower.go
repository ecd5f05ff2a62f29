package raft

import (
	"github.com/millrace/millrace/raft/raftpb"
)

// hearLeader comes first for every message of a leader of this term: a candidate gives up, and a follower
// restarts its election timer. A term has one leader. A second one means that a voter has voted twice (it was
// wiped, or restored from a backup); its entries may differ from the entries here that have the same index
// and term.
func (r *raft) hearLeader(from uint64) error {
	switch {
	case r.role == StateLeader:
		return &PeerError{From: from, Rule: "claims to lead the term that this node leads", Have: r.term, Want: r.term + 1}
	case r.lead != None && r.lead != from:
		return &PeerError{From: from, Rule: "claims to lead the term that another node leads", Have: from, Want: r.lead}
	}
	if r.role != StateFollower {
		r.becomeFollower(r.term, from)
	}
	r.electionElapsed = 0
	r.promise()
	r.lead = from
	if r.authority.without && r.authority.lacksTerms && r.vote == None {
		r.vote = from // it may have voted in this term; this vote changes nothing, as the leader is elected
	}
	return nil
}

// hearsLeader reports whether the node has heard a leader within the minimum election timeout. While it does,
// it takes no part in elections, so that a server that cannot hear the leader cannot depose it (thesis
// §4.2.3).
func (r *raft) hearsLeader() bool {
	return r.promisedTicks > 0 || (r.cfg.checkQuorum && r.lead != None && r.electionElapsed < r.cfg.electionTicks)
}

// handleAppendEntries is the receiver's half of AppendEntries (thesis figure 3.1). It acknowledges exactly
// what it has verified against this leader's log. The acknowledgement leaves only when the verified entries
// are durable.
func (r *raft) handleAppendEntries(from uint64, a appendEntries) error {
	if err := r.rejectAppendEntries(from, a); err != nil {
		return err
	}
	if a.prev.Index < r.log.committed {
		// A stale duplicate. Every leader's log has what is committed here, so it can be acknowledged.
		if committed := r.log.committed; !r.answerWaits(from, committed) {
			r.acknowledge(from, committed)
		}
		return nil
	}
	if !r.log.matches(a.prev) {
		r.sendAppendReject(from, a.prev)
		return nil
	}
	fresh := a.entries[r.log.firstConflict(a.entries):] // after prev, so after everything committed
	r.log.append(fresh, r.term)
	verified := a.prev.Index + uint64(len(a.entries))
	commit := min(a.commit, verified)
	saysNothingNew := commit <= r.log.committed && r.answerWaits(from, verified)
	if r.log.commitTo(commit); !saysNothingNew {
		r.acknowledge(from, verified)
	}
	return nil
}

// answerWaits reports whether an acknowledgement through index, or a later one, already waits for a write
// that was handed out. While a leader lacks that answer it asks again after every heartbeat, and each answer
// would be a write: a follower whose disk hangs would queue writes without end.
//
// The waiting answer may be lost after it leaves. By then the append worker has acknowledged entry index, so
// the leader gets an answer when it asks again.
func (r *raft) answerWaits(leader, index uint64) bool {
	waits := r.out.ackHandedOut
	now := r.acknowledgement(leader, index)
	return waits.sameAuthor(now) && index <= waits.index && index >= r.log.unstable.offset
}

// acknowledge tells the leader, once it is durable, that the log matches the leader's through index.
func (r *raft) acknowledge(to, index uint64) {
	r.send(r.withStanding(raftpb.Message{Type: raftpb.MsgAppResp, To: to, Index: index}))
	r.out.ack = r.acknowledgement(to, index)
}

// rejectAppendEntries returns why no correct leader sends this append, or nil: its entries are not contiguous
// after prev, their terms decrease, one is from a later term than the leader's, or one conflicts with a
// committed entry. A conflict comes from a quorum that was restored from a backup; to acknowledge it would
// let two state machines diverge without notice.
func (r *raft) rejectAppendEntries(from uint64, a appendEntries) error {
	index, term := a.prev.Index, a.prev.Term
	for i := range a.entries {
		e := &a.entries[i]
		switch {
		case e.Index != index+1:
			return &PeerError{From: from, Rule: "entries of an append are not contiguous", Have: e.Index, Want: index + 1}
		case e.Term < max(term, 1):
			return &PeerError{From: from, Rule: "terms within an append decrease", Have: e.Term, Want: max(term, 1)}
		}
		index, term = e.Index, e.Term
	}
	if term > r.term {
		return &PeerError{From: from, Rule: "entry of an append is from a later term than its leader", Have: term, Want: r.term}
	}
	if r.log.contradictsCommitted(a.prev) {
		return &PeerError{From: from, Rule: "append conflicts with a committed entry", Have: a.prev.Index, Want: r.log.committed + 1}
	}
	for i := 0; i < len(a.entries) && a.entries[i].Index <= r.log.committed; i++ {
		if id := a.entries[i].ID(); r.log.contradictsCommitted(id) {
			return &PeerError{From: from, Rule: "append conflicts with a committed entry", Have: id.Index, Want: r.log.committed + 1}
		}
	}
	return nil
}

// sendAppendReject tells the leader that prev does not match, and where to try next: the last entry at or
// below prev whose term is not above prev's, so that each round skips a whole term (thesis §3.5, last
// paragraph).
func (r *raft) sendAppendReject(to uint64, prev raftpb.EntryID) {
	hint := r.log.lastNotAfter(min(prev.Index, r.log.lastIndex()), prev.Term)
	r.send(r.withStanding(raftpb.Message{
		Type:       raftpb.MsgAppResp,
		To:         to,
		Index:      prev.Index,
		Reject:     true,
		RejectHint: hint.Index,
		LogTerm:    hint.Term,
	}))
}

// handleHeartbeat advances the commit index. The leader has capped it at what this node acknowledged. A node
// without authority takes it only from a heartbeat for this life of the node: in an earlier one it may have
// acknowledged entries in place of those that it has now.
func (r *raft) handleHeartbeat(from, commit uint64, context []byte) error {
	told, ours := r.hearNotice(context)
	if r.authority.without && !ours {
		commit = 0
	}
	if last := r.log.lastIndex(); commit > last {
		return &PeerError{From: from, Rule: "heartbeat commits beyond the end of this log: this node has lost entries that it acknowledged", Have: last, Want: commit}
	}
	r.log.commitTo(commit)
	answer := raftpb.Message{Type: raftpb.MsgHeartbeatResp, To: from}
	if !told && !r.authority.without {
		if r.remembersPromise() {
			answer.Context = context
		}
		r.send(answer)
		return nil
	}
	r.send(r.withStanding(answer))
	return nil
}
