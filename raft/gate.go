package raft

import (
	pb "github.com/millrace/millrace/raft/raftpb"
)

// The gate. Every input passes step, where the term rules of thesis §3.3 are applied and the union Message is unpacked,
// once, into the arguments a handler needs. Behind the gate a handler may trust: the sender's term is the node's own
// (or the message is local), and the fields it is handed belong together.
//
// A message that a correct peer would not send is refused with a PeerError and changes nothing.

type appendEntries struct {
	prev    entryID
	entries []pb.Entry
	commit  uint64
}

type appendReply struct {
	index    uint64
	rejected bool
	hint     entryID // where the follower suggests to try next, in a rejection
}

type voteRequest struct {
	term uint64 // of the election; one ahead of the sender's for a pre-vote
	last entryID
	pre  bool
}

func (r *raft) step(m *pb.Message) error {
	if m.Term != 0 { // 0: local, or a forwarded proposal
		carryOn, err := r.stepTerm(m)
		if !carryOn || err != nil {
			return err
		}
	}
	switch m.Type {
	case pb.MsgHup:
		r.campaign()
	case pb.MsgBeat:
		if r.role == StateLeader {
			r.broadcastHeartbeat()
		}
	case pb.MsgCheckQuorum:
		if r.role == StateLeader {
			r.checkQuorum()
		}
	case pb.MsgProp:
		return r.handleProposal(m)
	case pb.MsgApp:
		if err := r.hearLeader(m.From); err != nil {
			return err
		}
		return r.handleAppendEntries(m.From, appendEntries{
			prev:    entryID{term: m.LogTerm, index: m.Index},
			entries: m.Entries,
			commit:  m.Commit,
		})
	case pb.MsgHeartbeat:
		if err := r.hearLeader(m.From); err != nil {
			return err
		}
		return r.handleHeartbeat(m.From, m.Commit, m.Context)
	case pb.MsgAppResp:
		return r.handleAppendReply(m.From, appendReply{
			index:    m.Index,
			rejected: m.Reject,
			hint:     entryID{term: m.LogTerm, index: m.RejectHint},
		})
	case pb.MsgHeartbeatResp:
		r.handleHeartbeatReply(m.From)
	case pb.MsgVote, pb.MsgPreVote:
		r.handleVoteRequest(m.From, voteRequest{
			term: m.Term,
			last: entryID{term: m.LogTerm, index: m.Index},
			pre:  m.Type == pb.MsgPreVote,
		})
	case pb.MsgVoteResp, pb.MsgPreVoteResp:
		r.handleVote(m.From, m.Type == pb.MsgPreVoteResp, !m.Reject)
	case pb.MsgUnreachable:
		r.handleUnreachable(m.From)
	case pb.MsgStorageAppendResp:
		r.log.unstable.stableTo(m.Index, m.Term)
	case pb.MsgStorageApplyResp:
		if n := len(m.Entries); n > 0 {
			r.handleApplied(m.Entries)
		}
	default:
		// Snapshots, reads, transfer and forget-leader come with the next step of this package; they are refused,
		// not half done.
		return ErrUnsupported
	}
	return nil
}

// stepTerm applies the term rules and reports whether the message is still to be handled.
func (r *raft) stepTerm(m *pb.Message) (carryOn bool, err error) {
	switch {
	case m.Type == pb.MsgStorageAppendResp:
		return true, nil // its Term is a mark of the unstable log, not a term of the protocol
	case m.Term > r.term:
		return r.stepHigherTerm(m), nil
	case m.Term < r.term:
		r.answerStale(m)
		return false, nil
	}
	return true, nil
}

func (r *raft) stepHigherTerm(m *pb.Message) (carryOn bool) {
	switch m.Type {
	case pb.MsgVote, pb.MsgPreVote:
		if r.hearsLeader() {
			return false
		}
		if m.Type == pb.MsgVote {
			r.becomeFollower(m.Term, None)
		}
	case pb.MsgPreVoteResp:
		// A granted pre-vote echoes the term asked about, which nobody has entered yet. A refusal carries the term
		// of a node that is ahead.
		if m.Reject {
			r.becomeFollower(m.Term, None)
		}
	case pb.MsgApp, pb.MsgHeartbeat, pb.MsgSnap:
		r.becomeFollower(m.Term, m.From)
	default:
		r.becomeFollower(m.Term, None)
	}
	return true
}

// answerStale tells a sender of an older term what it needs to get out of it. Silence would do where the sender is to
// lose, but not for one that cannot win an election nor be followed: a leader cut off while a pre-candidate or a
// quorum check keeps terms apart would go on for ever.
func (r *raft) answerStale(m *pb.Message) {
	switch m.Type {
	case pb.MsgApp, pb.MsgHeartbeat:
		if r.cfg.checkQuorum || r.cfg.preVote {
			r.send(pb.Message{Type: pb.MsgAppResp, To: m.From})
		}
	case pb.MsgPreVote:
		r.send(pb.Message{Type: pb.MsgPreVoteResp, To: m.From, Term: r.term, Reject: true})
	}
}

// hearLeader is common to all that a leader of this term says: a candidate gives up, a follower waits anew.
func (r *raft) hearLeader(from uint64) error {
	if r.role == StateLeader {
		return &PeerError{From: from, Rule: "it claims to lead the term that this node leads", Have: r.term, Want: r.term + 1}
	}
	if r.role != StateFollower {
		r.becomeFollower(r.term, from)
	}
	r.electionElapsed = 0
	r.lead = from
	return nil
}
