package raft

import (
	"github.com/millrace/millrace/raft/quorum"
	"github.com/millrace/millrace/raft/raftpb"
)

// candidate is what a pre-candidate or candidate has: the answers so far, its own among them once that is durable.
type candidate struct {
	votes map[uint64]bool
}

func newCandidate() *candidate { return &candidate{votes: make(map[uint64]bool)} }

// campaign starts an election, by a pre-vote round where that is configured.
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

// mayCampaign also looks for changes of members that are committed and not applied: the votes would be counted by a
// configuration that is no longer in force.
func (r *raft) mayCampaign() bool {
	return r.role != StateLeader && r.promotable() && r.term < maxTerm && !r.hasUnappliedConfChange()
}

// startElection asks for votes; the context says if the leader wants it so.
func (r *raft) startElection(context []byte) {
	r.becomeCandidate()
	r.requestVotes(raftpb.MsgVote, r.term, context)
}

// requestVotes asks every voter, itself by a message to itself that waits for the own disk like any vote does.
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

// learnCommitted takes what one that refuses a vote, and may not lead itself, knows to be committed. A leader that applies
// its own removal has a log that is longer than its members', and may be gone before it told them that the removal is
// committed; they then count votes by a configuration in which they need the vote of the one that was removed, who
// refuses it to the shorter logs. (raft-rs had this from its use of joint configurations; etcd-io/etcd #12359.) Whoever
// says it, that an entry is committed stays true, and the entry must be in the own log.
func (r *raft) learnCommitted(id raftpb.EntryID) {
	if r.role != StateLeader && id.Index > r.log.committed && r.log.matches(id) {
		r.log.commitTo(id.Index)
	}
}

// hearCandidate enters the term of an election that another holds. A follower's wait for a leader goes on; only a vote that it
// gives begins it anew (thesis §3.4). Otherwise candidates who cannot win would put off the one who can, again and again.
func (r *raft) hearCandidate(term uint64) {
	waits, elapsed := r.role == StateFollower, r.electionElapsed
	r.becomeFollower(term, None)
	if waits {
		r.electionElapsed = elapsed
	}
}

// handleVoteRequest grants or refuses a vote (thesis §3.4, §3.6.1) or a pre-vote (§9.6). A vote is given once in a
// term; a pre-vote promises nothing, so it needs only a term ahead of ours.
func (r *raft) handleVoteRequest(from uint64, v voteRequest) {
	if r.promisedTicks > 0 && !v.ordered {
		return // as for a higher term, at the gate: a promise outlives the term in which it was made
	}
	reply := raftpb.Message{Type: raftpb.MsgVoteResp, To: from, Term: v.term}
	if v.pre {
		reply.Type = raftpb.MsgPreVoteResp
	}
	if r.refusesVote(from, v) {
		reply.Reject, reply.Term = true, r.term
		if !r.promotable() {
			committed := r.log.committedID()
			reply.Commit, reply.LogTerm = committed.Index, committed.Term
		}
		r.giveWay(v)
		r.send(reply)
		return
	}
	if !v.pre {
		r.electionElapsed = 0
		r.vote = from
	}
	r.send(reply)
}

// giveWay lets a candidate whose log is longer campaign first the next time: this node waits anew. Say this node still has an
// old configuration. It asks members who are no longer in force, and raises its term with every election. The candidate
// with the longer log needs this node's vote, but it comes with an earlier term, or when the vote is spent on this node
// itself. Without giving way the two could keep the group from electing for many timeouts.
func (r *raft) giveWay(v voteRequest) {
	if ours := r.log.lastEntryID(); !v.pre && r.vote == r.id && r.lead == None && v.last != ours && r.log.isUpToDate(v.last) {
		r.electionElapsed = 0
	}
}

func (r *raft) refusesVote(from uint64, v voteRequest) bool {
	free := r.vote == from || (r.vote == None && r.lead == None) || (v.pre && v.term > r.term)
	return !free || !r.log.isUpToDate(v.last)
}

// handleVote counts an answer. One that belongs to the other kind of round is late, and ignored.
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
