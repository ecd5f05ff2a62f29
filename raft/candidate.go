package raft

import (
	"github.com/millrace/millrace/raft/quorum"
	"github.com/millrace/millrace/raft/raftpb"
)

// candidate is the state of a pre-candidate or candidate: the answers so far, its own among them once that is
// durable.
type candidate struct {
	votes map[uint64]bool
}

func newCandidate() *candidate { return &candidate{votes: make(map[uint64]bool)} }

// campaign starts an election, with a round of pre-votes before it if that is configured.
func (r *raft) campaign() {
	if !r.mayCampaign() {
		return
	}
	if r.cfg.preVote {
		r.becomePreCandidate()
		r.requestVotes(raftpb.MsgPreVote, r.term+1, nil)
		return
	}
	r.startElection(nil)
}

// mayCampaign reports whether this node may start an election. A committed membership change that is not
// applied here forbids it: the votes would be counted by a configuration that is no longer in force.
func (r *raft) mayCampaign() bool {
	return r.role != StateLeader && r.promotable() && r.term < maxTerm && !r.hasUnappliedConfChange()
}

// startElection asks for votes. The context says whether the leader ordered the election.
func (r *raft) startElection(context []byte) {
	r.becomeCandidate()
	r.requestVotes(raftpb.MsgVote, r.term, context)
}

// requestVotes asks every voter for its vote. Its own vote is a message to itself, which waits for its disk
// like every vote.
func (r *raft) requestVotes(request raftpb.MessageType, term uint64, context []byte) {
	last := r.log.lastEntryID()
	for _, id := range r.conf.Members() {
		switch {
		case !r.conf.IsVoter(id):
		case id == r.id:
			r.send(raftpb.Message{Type: voteReplyType(request), To: id, Term: term})
		default:
			r.send(raftpb.Message{Type: request, To: id, Term: term, Index: last.Index, LogTerm: last.Term, Context: context})
		}
	}
}

func voteReplyType(request raftpb.MessageType) raftpb.MessageType {
	if request == raftpb.MsgPreVote {
		return raftpb.MsgPreVoteResp
	}
	return raftpb.MsgVoteResp
}

// learnCommitted handles the commit index that comes with the refusal of a vote by a node that may not lead
// itself. It resolves this deadlock: a leader that applies its own removal has a longer log than the members,
// and may be gone before it told them that the removal is committed. The members then count votes by a
// configuration in which they need the vote of the removed node, which refuses it to their shorter logs.
// (raft-rs had this from its use of joint configurations; etcd-io/etcd #12359.) An entry that is committed
// stays committed, whichever node says so; this node only has to have that entry in its log.
func (r *raft) learnCommitted(id raftpb.EntryID) {
	if r.role != StateLeader && id.Index > r.log.committed && r.log.matches(id) {
		r.log.commitTo(id.Index)
	}
}

// hearCandidate enters the term of another node's election. A follower's election timer runs on; only
// granting a vote restarts it (thesis §3.4). Otherwise candidates that cannot win would delay the one that
// can, again and again.
func (r *raft) hearCandidate(term uint64) {
	waits, elapsed := r.role == StateFollower, r.electionElapsed
	r.becomeFollower(term, None)
	if waits {
		r.electionElapsed = elapsed
	}
}

// handleVoteRequest grants or refuses a vote (thesis §3.4, §3.6.1) or a pre-vote (§9.6). A node grants one
// vote in a term. A pre-vote promises nothing, so a request for one only needs a later term.
func (r *raft) handleVoteRequest(from uint64, v voteRequest) {
	if r.promisedTicks > 0 && !v.ordered {
		return // as for a higher term, at the gate: a promise outlives the term in which it was made
	}
	reply := raftpb.Message{Type: raftpb.MsgVoteResp, To: from, Term: v.term}
	if v.pre {
		reply.Type = raftpb.MsgPreVoteResp
	}
	if r.rejectVote(from, v) {
		reply.Reject, reply.Term = true, r.term
		if !r.promotable() {
			committed := r.log.committedID()
			reply.Commit, reply.LogTerm = committed.Index, committed.Term
		}
		r.giveWay(v)
		if r.term > 0 { // a node without authority may refuse before its first term
			r.send(reply)
		}
		return
	}
	if !v.pre {
		r.electionElapsed = 0
		r.vote = from
	}
	r.send(reply)
}

// giveWay restarts this node's election timer when it refuses a candidate with a longer log only because it
// already voted for itself. Otherwise a node with an outdated configuration, which campaigns among members
// that no longer count its vote, could spend its vote on itself in term after term, and keep the one
// electable candidate from winning for many timeouts.
func (r *raft) giveWay(v voteRequest) {
	if ours := r.log.lastEntryID(); !v.pre && r.vote == r.id && r.lead == None && v.last != ours && r.log.isUpToDate(v.last) {
		r.electionElapsed = 0
	}
}

// rejectVote reports whether the vote, or pre-vote, must be refused: it was given to another node, the
// candidate's log is not up to date, or this node is without authority.
func (r *raft) rejectVote(from uint64, v voteRequest) bool {
	free := r.vote == from || (r.vote == None && r.lead == None) || (v.pre && v.term > r.term)
	return !free || !r.log.isUpToDate(v.last) || r.authority.without
}

// handleVote counts an answer. An answer to the other kind of round is late, and is ignored.
func (r *raft) handleVote(from uint64, pre, granted bool) {
	waiting := (r.role == StatePreCandidate && pre) || (r.role == StateCandidate && !pre)
	if !waiting || !r.conf.IsVoter(from) {
		return
	}
	if _, voted := r.candidate.votes[from]; !voted {
		r.candidate.votes[from] = granted
	}
	switch r.conf.Voters.VoteResult(r.candidate.votes) {
	case quorum.VoteWon:
		if r.role == StatePreCandidate {
			r.startElection(nil)
		} else {
			r.becomeLeader()
			r.broadcastAppend()
		}
	case quorum.VoteLost:
		r.becomeFollower(r.term, None)
	}
}
