package raft

import (
	"fmt"

	pb "github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// leader is what only a leader has.
type leader struct {
	// peers is its view of every member. Its own match index is that of its own disk, and moves by a message to itself
	// when a write is durable (thesis §10.2.1).
	peers tracker.Peers
	// termStart is the index of its first entry: the first that it may count for commit.
	termStart        uint64
	heartbeatElapsed int
	// pendingConf is the last entry that may hold a change of members; the next one waits until it is applied.
	pendingConf uint64
	// uncommittedBytes are the payload bytes proposed in this term and not yet applied.
	uncommittedBytes uint64
	transfer         transfer
	reads            reads
	// ticks counts since the office began; leaseUntil is when the lease ends, if no election was ordered meanwhile.
	ticks, leaseUntil int
	orderedElection   bool
}

func newLeader(r *raft) *leader {
	last := r.log.lastIndex()
	l := &leader{
		peers:     tracker.MakePeers(r.conf, last, r.cfg.maxInflightMsgs, r.cfg.maxInflightBytes),
		termStart: last + 1,
		// Perhaps an earlier leader's last entry was a change. That it was one and is not applied is all that counts, so
		// it need not be looked for.
		pendingConf: last,
	}
	if own := l.peers.Get(r.id); own != nil {
		own.Match = r.log.durable()
		own.RecentActive = true
	}
	return l
}

func noop() []pb.Entry { return []pb.Entry{{}} }

// tickLeader sends heartbeats, and checks once in an election timeout that a quorum still answers.
func (r *raft) tickLeader() {
	r.leader.ticks++
	r.leader.heartbeatElapsed++
	r.tickTransfer()
	r.leaveJoint()
	r.electionElapsed++
	if r.electionElapsed >= r.cfg.electionTicks {
		r.electionElapsed = 0
		switch {
		case !r.promotable():
			// Removed, or demoted, for an election timeout: the members have heard of it by now. From one that is no
			// voter no proposal is taken, so the group is better served by another.
			r.becomeFollower(r.term, None)
		case r.cfg.checkQuorum:
			r.checkQuorum()
		}
	}
	if r.role == StateLeader && r.leader.heartbeatElapsed >= r.cfg.heartbeatTicks {
		r.leader.heartbeatElapsed = 0
		r.beat()
	}
}

// checkQuorum steps down when no quorum was heard since the last check (thesis §6.2): clients of a leader that cannot
// commit are better served elsewhere.
func (r *raft) checkQuorum() {
	peers := r.leader.peers
	if !peers.QuorumActive(r.conf, r.id) {
		r.becomeFollower(r.term, None)
		return
	}
	for i := range peers {
		peers[i].Progress.RecentActive = false
	}
}

// propose appends commands to the own log and sends them out.
func (r *raft) propose(entries []pb.Entry) error {
	if reason := r.refusesProposal(entries); reason != nil {
		return reason
	}
	r.leader.uncommittedBytes += payloadSize(entries)
	// A copy: the caller may keep its message, while index and term are written into these.
	entries = append([]pb.Entry(nil), entries...)
	r.appendOwn(entries)
	for i := range entries {
		if entries[i].Type != pb.EntryNormal {
			r.leader.pendingConf = entries[i].Index
		}
	}
	r.broadcastAppend()
	return nil
}

func (r *raft) refusesProposal(entries []pb.Entry) error {
	if !r.promotable() || r.transferring() {
		return ErrProposalDropped
	}
	if err := r.refusesEntries(entries); err != nil {
		return err
	}
	// The first proposal always fits, however large, or it could never go.
	size, held := payloadSize(entries), r.leader.uncommittedBytes
	if held > 0 && size > 0 && held+size > r.cfg.maxUncommittedBytes {
		return ErrProposalDropped
	}
	return nil
}

// refusesEntries looks for changes of members among the entries, of which there may be one.
func (r *raft) refusesEntries(entries []pb.Entry) error {
	changes := 0
	for i := range entries {
		e := &entries[i]
		switch e.Type {
		case pb.EntryNormal:
			continue
		case pb.EntryConfChange, pb.EntryConfChangeV2:
			changes++
		default:
			return fmt.Errorf("%w: entry %d of %d has type %d, which nobody knows", ErrProposalDropped, i+1, len(entries), e.Type)
		}
		c, err := readConfChange(e)
		if err == nil && r.cfg.validateConfChanges {
			if changes > 1 {
				return fmt.Errorf("%w: %d are in one proposal, at most 1 may be", ErrConfChangeRefused, changes)
			}
			err = r.refusesConfChange(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// appendOwn gives entries their place in the log of this leader's term. The own acknowledgement is a message that waits
// for the own disk.
func (r *raft) appendOwn(entries []pb.Entry) {
	next := r.log.lastIndex() + 1
	for i := range entries {
		entries[i].Term, entries[i].Index = r.term, next+uint64(i)
	}
	r.log.append(entries, r.term)
	r.send(pb.Message{Type: pb.MsgAppResp, To: r.id, Index: r.log.lastIndex()})
}

// handleApplied takes the apply worker's acknowledgement of the entries it was handed.
func (r *raft) handleApplied(entries []pb.Entry) {
	r.log.appliedTo(entries[len(entries)-1].Index, entriesSize(entries))
	if r.leader == nil {
		return
	}
	for i := range entries {
		if entries[i].Index >= r.leader.termStart { // what earlier leaders proposed was never counted
			r.leader.uncommittedBytes -= uint64(len(entries[i].Data))
		}
	}
	r.leaveJoint()
}

func (r *raft) broadcastHeartbeat() {
	position := r.leader.reads.position()
	for i := range r.leader.peers {
		if id := r.leader.peers[i].ID; id != r.id {
			r.sendHeartbeat(id, &r.leader.peers[i].Progress, position)
		}
	}
}

// sendHeartbeat keeps a follower's timeout from running out. The commit index in it is capped at what the follower has
// acknowledged: it may not have the rest.
func (r *raft) sendHeartbeat(to uint64, pr *tracker.Progress, position []byte) {
	commit := min(pr.Match, r.log.committed)
	r.send(pb.Message{Type: pb.MsgHeartbeat, To: to, Commit: commit, Context: position})
	pr.SentCommit(commit)
}

// handleHeartbeatReply learns that a follower is there, and still was when the reads through a position were asked; one
// that is behind gets what it may have missed.
func (r *raft) handleHeartbeatReply(from uint64, context []byte) error {
	pr := r.progressOf(from)
	if pr == nil {
		return nil
	}
	position, err := r.echoedPosition(from, context)
	if err != nil {
		return err
	}
	pr.RecentActive = true
	pr.MsgAppFlowPaused = false
	if pr.Match < r.log.lastIndex() || pr.State == tracker.StateProbe {
		r.sendAppend(from, pr, evenIfEmpty)
	}
	r.sendTimeoutNow(from, pr)
	r.noteEcho(from, position)
	return nil
}

// handleUnreachable is the transport's word that appends may have been lost.
func (r *raft) handleUnreachable(id uint64) {
	if pr := r.progressOf(id); pr != nil && pr.State == tracker.StateReplicate {
		pr.BecomeProbe()
	}
}

// progressOf returns the leader's view of a member; nil on any other role, or for a stranger.
func (r *raft) progressOf(id uint64) *tracker.Progress {
	if r.leader == nil {
		return nil
	}
	return r.leader.peers.Get(id)
}
