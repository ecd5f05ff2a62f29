package raft

import (
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// Leadership transfer (thesis §3.10). The leader stops taking proposals, sends the target the rest of its
// log, and then tells it to campaign at once. The target wins like any candidate: by the votes of a quorum,
// which it asks for only when its own vote is durable. Safety does not depend on the leader's order, so an
// order that arrives late, twice or not at all costs an election at most.
//
// Invariant: while a transfer is under way the log does not grow, so a target that has all of it keeps having
// all of it. A transfer ends with the leader's term, when it is aborted after one election timeout, or when
// another target takes its place.

// transfer is the leader's state of the transfer under way. The zero value means none.
type transfer struct {
	target  uint64
	elapsed int // ticks since the transfer began
}

// campaignTransfer is the context of a vote request that a leader's order caused. Nodes that hear the leader
// handle such a request too: the leader itself wants to hand over.
const campaignTransfer = "CampaignTransfer"

func orderedElection(m *raftpb.Message) bool { return string(m.Context) == campaignTransfer }

// handleTransfer handles the request to make target the leader. A follower forwards it to its leader.
func (r *raft) handleTransfer(target uint64) error {
	if target == None {
		return fmt.Errorf("%w: the target is 0, which is the id of no node", ErrTransferRefused)
	}
	if r.role != StateLeader {
		if r.role != StateFollower || r.lead == None {
			return fmt.Errorf("%w: no leader is known", ErrTransferRefused)
		}
		r.send(raftpb.Message{Type: raftpb.MsgTransferLeader, To: r.lead, From: target})
		return nil
	}
	if target == r.id {
		r.abortTransfer() // the leader as the target takes back a transfer
	}
	if err := r.rejectTransfer(target); err != nil {
		return err
	}
	if target == r.leader.transfer.target {
		return nil // under way; a second request does not prolong it
	}
	r.leader.transfer = transfer{target: target}
	if pr := r.leader.members.Get(target); !r.sendTimeoutNow(target, pr) {
		r.sendAppend(target, pr, evenIfEmpty)
	}
	return nil
}

// rejectTransfer returns why target cannot be made leader, or nil.
func (r *raft) rejectTransfer(target uint64) error {
	switch {
	case target == r.id:
		return fmt.Errorf("%w: node %d already leads", ErrTransferRefused, target)
	case !r.conf.IsMember(target):
		return fmt.Errorf("%w: node %d is not a member", ErrTransferRefused, target)
	case !r.conf.IsVoter(target):
		return fmt.Errorf("%w: node %d is a learner, which cannot lead", ErrTransferRefused, target)
	case r.leader.members.Get(target).WithoutAuthority:
		return fmt.Errorf("%w: node %d is without authority, because it may lack what it has acknowledged; try again when it has caught up", ErrTransferRefused, target)
	}
	return nil
}

func (r *raft) transferring() bool { return r.leader != nil && r.leader.transfer.target != None }

func (r *raft) abortTransfer() { r.leader.transfer = transfer{} }

// tickTransfer aborts a transfer after one election timeout. From then on this leader serves the clients
// better than none.
func (r *raft) tickTransfer() {
	if !r.transferring() {
		return
	}
	r.leader.transfer.elapsed++
	if r.leader.transfer.elapsed >= r.cfg.electionTicks {
		r.abortTransfer()
	}
}

// sendTimeoutNow orders node id to campaign, if it is the target and has all of this leader's log, and
// reports whether it did. Every message from the target repeats the order, which may have been lost. A target
// that already campaigns is in a later term and ignores it.
func (r *raft) sendTimeoutNow(id uint64, pr *tracker.Progress) bool {
	if id != r.leader.transfer.target || pr.Match < r.log.lastIndex() || pr.WithoutAuthority {
		return false
	}
	r.leader.orderedElection = true
	r.send(raftpb.Message{Type: raftpb.MsgTimeoutNow, To: id})
	return true
}

// handleTimeoutNow campaigns on the order of the leader, without a pre-vote and without waiting for the other
// nodes' timeouts. A candidate ignores the order, because it has already begun.
func (r *raft) handleTimeoutNow(from uint64) error {
	switch {
	case r.lead != None && from != r.lead:
		return &PeerError{From: from, Rule: "orders an election in a term that another node leads", Have: from, Want: r.lead}
	case r.role == StateFollower && r.mayCampaign():
		r.startElection([]byte(campaignTransfer))
	}
	return nil
}
