package raft

import (
	"math"

	"github.com/millrace/millrace/raft/raftpb"
)

// The gate. Every input passes step, where the term rules of thesis §3.3 are applied and the union Message is unpacked,
// once, into the arguments a handler needs. Behind the gate a handler may trust: the sender's term is the node's own
// (or the message is local), and the fields it is handed belong together.
//
// A message that a correct peer would not send is refused with a PeerError. It may have told of a newer term, or that the
// leader is there; it changes neither log nor vote.

type appendEntries struct {
	prev    raftpb.EntryID
	entries []raftpb.Entry
	commit  uint64
}

type appendReply struct {
	index    uint64
	rejected bool
	hint     raftpb.EntryID // where the follower suggests to try next, in a rejection
}

type voteRequest struct {
	term uint64 // of the election; one ahead of the sender's for a pre-vote
	last raftpb.EntryID
	pre  bool
	// ordered by the leader, who hands over (transfer.go): those who hear it may vote.
	ordered bool
}

// maxTerm ends the terms that a peer may claim, far beyond what elections reach and far enough from where a term would
// wrap around.
const maxTerm = math.MaxUint64 >> 1

// maxIndex is the same for the index of a snapshot.
const maxIndex = math.MaxUint64 >> 1

// refusesSender looks at who speaks, before what is said is looked at. The workers answer for the storage and for
// nothing else; the node itself is heard only in the answers that waited for its own disk; peers need a term, and to
// answer they must be members.
//
// The order matters where a message is an exception to a later case: proposals and reads carry no term; a read names who
// asked, which may be this node; a wish to transfer names its target, which may be this node too.
func (r *raft) refusesSender(m *raftpb.Message) error {
	fromWorker := m.From == LocalAppendThread || m.From == LocalApplyThread
	switch {
	case fromWorker && (m.Type == raftpb.MsgStorageAppendResp || m.Type == raftpb.MsgStorageApplyResp):
		return nil
	case IsLocalMsg(m.Type):
		return ErrStepLocalMsg
	case (m.Type == raftpb.MsgProp || m.Type == raftpb.MsgReadIndex) && m.Term != 0:
		return &PeerError{From: m.From, Rule: "what it passes on claims a term", Have: m.Term, Want: 0}
	case m.Type == raftpb.MsgProp:
		return nil
	case fromWorker || m.From == None:
		return &PeerError{From: m.From, Rule: "its message has the sender id of no node"}
	case m.Type == raftpb.MsgReadIndex:
		return nil // it names who asked, perhaps this node itself before it became leader
	case m.Term > maxTerm:
		return &PeerError{From: m.From, Rule: "its term is beyond what elections can reach", Have: m.Term, Want: r.term}
	case m.Type == raftpb.MsgTransferLeader && (m.From == r.id || m.Term == 0):
		return nil // a target, not a sender; and the wish may come from an application, which knows no term
	case m.Term == 0:
		return &PeerError{From: m.From, Rule: "its message has no term", Have: 0, Want: 1}
	case m.From == r.id:
		if waitsForOwnDisk := IsResponseMsg(m.Type) && speaksOfUndurableState(m.Type) && !m.Reject; !waitsForOwnDisk {
			return &PeerError{From: m.From, Rule: "it uses this node's own id"}
		}
		return nil
	case IsResponseMsg(m.Type) && m.From != r.lead && !r.isMember(m.From):
		return ErrStepPeerNotFound // a leader may be member by a change that is still to be applied here
	}
	return nil
}

func (r *raft) step(m *raftpb.Message) error {
	if m.Term != 0 { // 0: local, or a forwarded proposal
		carryOn, err := r.stepTerm(m)
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
		return r.handleAppendReply(m.From, appendReply{
			index:    m.Index,
			rejected: m.Reject,
			hint:     raftpb.EntryID{Term: m.LogTerm, Index: m.RejectHint},
		})
	case raftpb.MsgHeartbeatResp:
		return r.handleHeartbeatReply(m.From, m.Context)
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
		return r.handleTransfer(m.From) // who shall lead is in From, whoever asks
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
		if n := len(m.Entries); n > 0 {
			r.handleApplied(m.Entries[n-1].Index)
		}
	default:
		return &PeerError{From: m.From, Rule: "its message is of a type that nobody knows", Have: uint64(m.Type), Want: uint64(raftpb.MsgForgetLeader)}
	}
	return nil
}

// stepTerm applies the term rules and reports whether the message is still to be handled.
func (r *raft) stepTerm(m *raftpb.Message) (carryOn bool, err error) {
	switch {
	case m.Type == raftpb.MsgStorageAppendResp:
		return true, nil // its Term is a mark of the unstable log, not a term of the protocol
	case m.Term > r.term:
		return r.stepHigherTerm(m), nil
	case m.Type == raftpb.MsgReadIndexResp:
		return true, nil // good in every later term
	case m.Term < r.term:
		if m.Type == raftpb.MsgPreVoteResp && m.Reject {
			// Pre-votes raise no terms, so who refuses one may be a term behind for ever. Its vote is not needed, but
			// what it knows to be committed may be what this node lacks to be elected.
			r.learnCommitted(raftpb.EntryID{Term: m.LogTerm, Index: m.Commit})
		}
		r.answerStale(m)
		return false, nil
	}
	return true, nil
}

func (r *raft) stepHigherTerm(m *raftpb.Message) (carryOn bool) {
	switch m.Type {
	case raftpb.MsgVote, raftpb.MsgPreVote:
		if r.hearsLeader() && !orderedElection(m) {
			return false
		}
		if m.Type == raftpb.MsgVote {
			r.hearCandidate(m.Term)
		}
	case raftpb.MsgPreVoteResp:
		// A granted pre-vote echoes the term asked about, which nobody has entered yet. A refusal carries the term
		// of a node that is ahead.
		if m.Reject {
			r.becomeFollower(m.Term, None)
		}
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap:
		r.becomeFollower(m.Term, m.From)
	default:
		r.becomeFollower(m.Term, None)
	}
	return true
}

// answerStale tells a sender of an older term that it is one: a leader, that it may be followed again only in a later
// term; a candidate, that it cannot win in this one. With silence they would go on for ever where this node cannot, or may
// not yet, campaign for itself: a learner, say, that comes back from a term of its own. The answer to both is an
// acknowledgement of nothing, which is no vote whenever it arrives.
func (r *raft) answerStale(m *raftpb.Message) {
	switch m.Type {
	case raftpb.MsgApp, raftpb.MsgHeartbeat, raftpb.MsgSnap, raftpb.MsgVote:
		r.send(raftpb.Message{Type: raftpb.MsgAppResp, To: m.From})
	case raftpb.MsgPreVote:
		r.send(raftpb.Message{Type: raftpb.MsgPreVoteResp, To: m.From, Term: r.term, Reject: true})
	}
}

// hearLeader is common to all that a leader of this term says: a candidate gives up, a follower waits anew. A term has one
// leader. A second one means that a voter has voted twice (it was wiped, or restored from a backup), and its entries may be
// others than those that are here under the same index and term.
func (r *raft) hearLeader(from uint64) error {
	switch {
	case r.role == StateLeader:
		return &PeerError{From: from, Rule: "it claims to lead the term that this node leads", Have: r.term, Want: r.term + 1}
	case r.lead != None && r.lead != from:
		return &PeerError{From: from, Rule: "it claims to lead the term that another leads", Have: from, Want: r.lead}
	}
	if r.role != StateFollower {
		r.becomeFollower(r.term, from)
	}
	r.electionElapsed = 0
	r.promise()
	r.lead = from
	return nil
}
