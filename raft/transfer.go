package raft

import (
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// Leadership transfer (thesis §3.10). The leader stops taking proposals, brings the target's log level with its own, and
// tells it to campaign at once. The target then wins like any candidate: by the votes of a quorum, asked for only when its
// own vote is durable. Nothing rests on the leader's word, so a message to campaign that comes late, twice or not at all
// costs an election, never safety.
//
// Invariant: while a transfer is under way the log does not grow, so a target that is level stays level. A transfer ends
// with the leader's term, by its abortion after one election timeout, or in favour of another target.

// transfer is what a leader keeps of the transfer under way; the zero value is none.
type transfer struct {
	target  uint64
	elapsed int // ticks since it began
}

// campaignTransfer is the context of a vote request that follows a leader's order. It is heard also by those who hear the
// leader: it is the leader's own wish to go.
const campaignTransfer = "CampaignTransfer"

func orderedElection(m *raftpb.Message) bool { return string(m.Context) == campaignTransfer }

// handleTransfer is asked to make target the leader. A follower passes the wish on to its leader.
func (r *raft) handleTransfer(target uint64) error {
	if target == None {
		return fmt.Errorf("%w: the target is nobody", ErrTransferRefused)
	}
	if r.role != StateLeader {
		if r.role != StateFollower || r.lead == None {
			return fmt.Errorf("%w: no leader is known", ErrTransferRefused)
		}
		r.send(raftpb.Message{Type: raftpb.MsgTransferLeader, To: r.lead, From: target})
		return nil
	}
	if err := r.refusesTransfer(target); err != nil {
		return err
	}
	if target == r.leader.transfer.target {
		return nil // under way; asking again does not prolong it
	}
	r.leader.transfer = transfer{target: target}
	if pr := r.leader.peers.Get(target); !r.sendTimeoutNow(target, pr) {
		r.sendAppend(target, pr, evenIfEmpty)
	}
	return nil
}

// refusesTransfer names why target cannot be made leader. The leader itself as a target takes back its transfer.
func (r *raft) refusesTransfer(target uint64) error {
	switch {
	case target == r.id:
		r.abortTransfer()
		return fmt.Errorf("%w: node %d leads already", ErrTransferRefused, target)
	case !r.conf.IsMember(target):
		return fmt.Errorf("%w: node %d is no member", ErrTransferRefused, target)
	case !r.conf.IsVoter(target):
		return fmt.Errorf("%w: node %d is a learner, which cannot lead", ErrTransferRefused, target)
	}
	return nil
}

func (r *raft) transferring() bool { return r.leader != nil && r.leader.transfer.target != None }

func (r *raft) abortTransfer() { r.leader.transfer = transfer{} }

// tickTransfer gives the target one election timeout; then clients are better served by this leader than by none.
func (r *raft) tickTransfer() {
	if !r.transferring() {
		return
	}
	r.leader.transfer.elapsed++
	if r.leader.transfer.elapsed >= r.cfg.electionTicks {
		r.abortTransfer()
	}
}

// sendTimeoutNow tells the target to campaign, if id is the target and has all that this leader has. Any sign of life
// from the target brings it again, as it may have been lost; one that campaigns already is in a later term and does
// not hear it.
func (r *raft) sendTimeoutNow(id uint64, pr *tracker.Progress) bool {
	if id != r.leader.transfer.target || pr.Match < r.log.lastIndex() {
		return false
	}
	r.leader.orderedElection = true
	r.send(raftpb.Message{Type: raftpb.MsgTimeoutNow, To: id})
	return true
}

// handleTimeoutNow campaigns by order of the leader: without the question whether it could win, and without waiting for
// the others' timeouts. A candidate has begun already.
func (r *raft) handleTimeoutNow(from uint64) error {
	switch {
	case r.lead != None && from != r.lead:
		return &PeerError{From: from, Rule: "it orders an election in a term that another leads", Have: from, Want: r.lead}
	case r.role == StateFollower && r.mayCampaign():
		r.startElection([]byte(campaignTransfer))
	}
	return nil
}
