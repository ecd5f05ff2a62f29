package raft

import (
	"math"

	"github.com/millrace/millrace/raft/raftpb"
)

// The gate. Every message passes step, where the term rules of thesis §3.3 are applied and the union Message
// is unpacked, once, into the arguments that a handler needs. Most calls of RawNode pass it too, as local
// messages. These do not, as they have neither sender nor term: ticks (tick.go), proposals on a leader
// (RawNode.Propose), ApplyConfChange and Bootstrap. Advance checks the term of a leader's acknowledgement of
// its own entries itself. Behind the gate a handler may trust that the sender's term is the node's own (or
// that the message is local), and that the fields it is handed belong together.
//
// A message that a correct peer would not send is refused with a PeerError. It may have announced a newer
// term, or shown that the leader is alive; it changes neither log nor vote.

type appendEntries struct {
	prev    raftpb.EntryID
	entries []raftpb.Entry
	commit  uint64
}

type appendReply struct {
	standing
	index    uint64
	rejected bool
	hint     raftpb.EntryID // where the follower suggests to try next, in a rejection
}

type voteRequest struct {
	term uint64 // of the election; for a pre-vote the term after the sender's
	last raftpb.EntryID
	pre  bool
	// ordered: the leader ordered this election to hand over (transfer.go), so nodes that hear the leader may
	// vote too.
	ordered bool
}

// maxTerm is the highest term that a peer may claim. It is far beyond what elections reach, and far from
// overflow.
const maxTerm = math.MaxUint64 >> 1

// maxIndex is the highest index of a snapshot, for the same reasons.
const maxIndex = math.MaxUint64 >> 1

func (r *raft) step(m *raftpb.Message) error {
	if m.Term != 0 { // 0: local, or forwarded
		carryOn, err := r.applyTermRules(m)
		if !carryOn || err != nil {
			return err
		}
	}
	switch m.Type {
	case raftpb.MsgHup:
		if r.role != StateLeader && r.promisedTicks > 0 {
			return ErrPromised
		}
		r.campaign()
	case raftpb.MsgBeat:
		if r.role == StateLeader {
			r.beat()
		}
	case raftpb.MsgCheckQuorum:
		if r.role == StateLeader {
			r.checkQuorum()
		}
	case raftpb.MsgProp:
		return r.handleProposal(m)
	case raftpb.MsgApp:
		if err := r.hearLeader(m.From); err != nil {
			return err
		}
		r.hearNotice(m.Context)
		return r.handleAppendEntries(m.From, appendEntries{
			prev:    raftpb.EntryID{Term: m.LogTerm, Index: m.Index},
			entries: m.Entries,
			commit:  m.Commit,
		})
	case raftpb.MsgSnap:
		if err := r.hearLeader(m.From); err != nil {
			return err
		}
		return r.handleSnapshot(m.From, m.Snapshot)
	case raftpb.MsgHeartbeat:
		if err := r.hearLeader(m.From); err != nil {
			return err
		}
		return r.handleHeartbeat(m.From, m.Commit, m.Context)
	case raftpb.MsgAppResp:
		s, err := standingOf(m)
		if err != nil {
			return err
		}
		return r.handleAppendReply(m.From, appendReply{
			standing: s,
			index:    m.Index,
			rejected: m.Reject && !s.acknowledging,
			hint:     raftpb.EntryID{Term: m.LogTerm, Index: m.RejectHint},
		})
	case raftpb.MsgHeartbeatResp:
		s, err := standingOf(m)
		if err != nil {
			return err
		}
		return r.handleHeartbeatReply(m.From, s, m.Context)
	case raftpb.MsgVote, raftpb.MsgPreVote:
		r.handleVoteRequest(m.From, voteRequest{
			term:    m.Term,
			last:    raftpb.EntryID{Term: m.LogTerm, Index: m.Index},
			pre:     m.Type == raftpb.MsgPreVote,
			ordered: orderedElection(m),
		})
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		if m.Reject {
			r.learnCommitted(raftpb.EntryID{Term: m.LogTerm, Index: m.Commit})
		}
		r.handleVote(m.From, m.Type == raftpb.MsgPreVoteResp, !m.Reject)
	case raftpb.MsgReadIndex:
		q, err := readOf(m)
		if err != nil {
			return err
		}
		return r.handleRead(q)
	case raftpb.MsgReadIndexResp:
		return r.handleReadReply(m)
	case raftpb.MsgTransferLeader:
		return r.handleTransfer(m.From) // From is the target, not the sender
	case raftpb.MsgTimeoutNow:
		return r.handleTimeoutNow(m.From)
	case raftpb.MsgForgetLeader:
		return r.forgetLeader()
	case raftpb.MsgUnreachable:
		r.handleUnreachable(m.From)
	case raftpb.MsgSnapStatus:
		r.handleSnapshotStatus(m.From, m.Reject)
	case raftpb.MsgStorageAppendResp:
		r.log.unstable.stableTo(m.Index, m.Term)
		if m.Snapshot != nil {
			r.handleSnapshotStable(m.Snapshot.Metadata.Index)
		}
	case raftpb.MsgStorageApplyResp:
		through := m.Index // of a range
		if n := len(m.Entries); n > 0 {
			through = m.Entries[n-1].Index
		}
		if through > 0 {
			r.handleApplied(through)
		}
	default:
		return &PeerError{From: m.From, Rule: "message type is unknown", Have: uint64(m.Type), Want: uint64(raftpb.MsgForgetLeader)}
	}
	return nil
}

// applyTermRules compares the term of a message with the node's, and reports whether the message is still to
// be handled.
func (r *raft) applyTermRules(m *raftpb.Message) (carryOn bool, err error) {
	switch {
	case m.Type == raftpb.MsgStorageAppendResp:
		return true, nil // its Term is the ackTerm of the unstable log, not a term of the protocol
	case m.Term > r.term:
		if r.announcesTerm(m) {
			if err := r.rejectFarTerm(m); err != nil {
				return false, err
			}
		}
		return r.enterHigherTerm(m), nil
	case m.Type == raftpb.MsgReadIndexResp:
		return true, nil // valid in every later term
	case m.Term < r.term:
		if m.Type == raftpb.MsgPreVoteResp && m.Reject {
			// Pre-votes raise no terms, so the sender of a refusal may stay a term behind for ever. Its vote
			// is not needed, but this node may need its commit index to be elected.
			r.learnCommitted(raftpb.EntryID{Term: m.LogTerm, Index: m.Commit})
		}
		r.answerStale(m)
		return false, nil
	}
	return true, nil
}

// enterHigherTerm enters the term of a message, unless a rule of elections forbids it, and reports whether
// the message is still to be handled.
func (r *raft) enterHigherTerm(m *raftpb.Message) (carryOn bool) {
	if r.ignoresElection(m) {
		return false
	}
	if !r.announcesTerm(m) {
		return true
	}
	switch m.Type {
	case raftpb.MsgVote:
		r.hearCandidate(m.Term)
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		r.becomeFollower(m.Term, m.From)
	default:
		r.becomeFollower(m.Term, None)
	}
	return true
}

// ignoresElection reports whether a message asks for a vote in an election in which this node takes no part.
func (r *raft) ignoresElection(m *raftpb.Message) bool {
	asks := m.Type == raftpb.MsgVote || m.Type == raftpb.MsgPreVote
	return asks && r.hearsLeader() && !orderedElection(m)
}

// announcesTerm reports whether a message of a higher term makes this node enter that term. A pre-vote, asked
// for or granted, names the term of an election that no node has entered yet. Its refusal carries the term of
// a node that is ahead.
func (r *raft) announcesTerm(m *raftpb.Message) bool {
	switch m.Type {
	case raftpb.MsgPreVote:
		return false
	case raftpb.MsgPreVoteResp:
		return m.Reject
	}
	return !r.ignoresElection(m)
}

// answerStale tells the sender of an older term about this node's term: a leader, that only a later term can
// lead this node again; a candidate, that it cannot win its term. Without an answer they would repeat
// themselves for ever if this node cannot campaign, or may not yet: for example a learner that comes back
// from a term of its own. Both get an acknowledgement of nothing, which is no vote whenever it arrives.
func (r *raft) answerStale(m *raftpb.Message) {
	switch m.Type {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap, raftpb.MsgVote:
		r.send(raftpb.Message{Type: raftpb.MsgAppResp, To: m.From})
	case raftpb.MsgPreVote:
		r.send(raftpb.Message{Type: raftpb.MsgPreVoteResp, To: m.From, Term: r.term, Reject: true})
	}
}
