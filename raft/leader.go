package raft

import (
	"fmt"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// leader is what only a leader has.
type leader struct {
	// peers is its view of every member. Its own match index is that of its own disk, and moves by a message to itself
	// when a write is durable (thesis §10.2.1).
	peers  tracker.Peers
	halves tracker.Halves
	// termStart is the index of its first entry: the first that it may count for commit.
	termStart        uint64
	heartbeatElapsed int
	// pendingConf is the last entry that may hold a change of members; the next one waits until it is applied.
	pendingConf uint64
	// uncommittedBytes are the bytes of the entries of this term that are not yet applied: payload and overhead.
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
		termStart: last + 1,
		// Perhaps an earlier leader's last entry was a change. That it was one and is not applied is all that counts, so
		// it need not be looked for.
		pendingConf: last,
	}
	l.setPeers(r.conf, tracker.MakePeers(r.conf, last, r.cfg.maxInflightMsgs, r.cfg.maxInflightBytes))
	if own := l.peers.Get(r.id); own != nil {
		own.Match = r.log.durable()
		own.RecentActive = true
	}
	return l
}

// setPeers puts a view of the members of a configuration in the place of the last.
func (l *leader) setPeers(c tracker.Config, peers tracker.Peers) {
	l.peers, l.halves = peers, tracker.MakeHalves(c, peers)
}

func noop() []raftpb.Entry { return []raftpb.Entry{{}} }

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
			// Removed, or demoted, at some time since the last check, and so for an election timeout at most. One that is
			// no voter takes no proposals, so the group is better served by another leader; if the members have not heard
			// yet that the change is committed, the refusals of this node will tell them (learnCommitted).
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
		peers[i].Progress.RecentActive = peers[i].ID == r.id
	}
}

// propose appends commands to the own log and sends them out. They are copied: the caller may keep its message, while
// index and term are written into these.
func (r *raft) propose(entries []raftpb.Entry) error {
	p := survey(entries)
	p.bytes += r.log.overhead(len(entries))
	if reason := r.refusesProposal(entries, p); reason != nil {
		return reason
	}
	if !p.plain {
		for i := range entries {
			if entries[i].Type != raftpb.EntryNormal {
				r.leader.pendingConf = r.log.lastIndex() + 1 + uint64(i)
			}
		}
	}
	r.appendOwn(entries)
	r.broadcastAppend()
	return nil
}

// proposal is what is to be known of proposed entries.
type proposal struct {
	bytes uint64 // payload and overhead
	plain bool   // commands only
}

func survey(entries []raftpb.Entry) proposal {
	p := proposal{plain: true}
	for i := range entries {
		p.bytes += uint64(len(entries[i].Data))
		p.plain = p.plain && entries[i].Type == raftpb.EntryNormal
	}
	return p
}

func (r *raft) refusesProposal(entries []raftpb.Entry, p proposal) error {
	if !r.promotable() || r.transferring() || len(entries) == 0 {
		return ErrProposalDropped
	}
	if !p.plain {
		if err := r.refusesEntries(entries); err != nil {
			return err
		}
	}
	// The first proposal always fits, however large, or it could never go.
	if held := r.leader.uncommittedBytes; held > 0 && p.bytes > 0 && held+p.bytes > r.cfg.maxUncommittedBytes {
		return ErrProposalDropped
	}
	return nil
}

// refusesEntries looks for changes of members among the entries, of which there may be one.
func (r *raft) refusesEntries(entries []raftpb.Entry) error {
	changes := 0
	for i := range entries {
		e := &entries[i]
		switch e.Type {
		case raftpb.EntryNormal:
			continue
		case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
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
func (r *raft) appendOwn(entries []raftpb.Entry) {
	first := r.log.lastIndex() + 1
	r.log.unstable.appendOwn(entries, r.term)
	r.leader.uncommittedBytes += r.log.held(r.log.unstable.slice(first, r.log.lastIndex()+1))
	r.out.ownAck = raftpb.EntryID{Term: r.term, Index: r.log.lastIndex()}
}

// handleApplied takes the apply worker's acknowledgement of entries through index.
func (r *raft) handleApplied(index uint64) {
	own := r.log.appliedTo(index, r.termStart())
	if r.leader != nil {
		r.leader.uncommittedBytes -= own
		r.leaveJoint()
	}
}

// termStart is the first entry of this leader; what earlier leaders proposed is never counted. On other roles it is beyond
// every entry.
func (r *raft) termStart() uint64 {
	if r.leader == nil {
		return noLimit
	}
	return r.leader.termStart
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
	r.send(raftpb.Message{Type: raftpb.MsgHeartbeat, To: to, Commit: commit, Context: position})
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

// isMember reports whether id is in the configuration. A leader's peers are, and it is asked at every acknowledgement.
func (r *raft) isMember(id uint64) bool {
	if r.leader != nil {
		return r.leader.peers.Get(id) != nil
	}
	return r.conf.IsMember(id)
}

// progressOf returns the leader's view of a member; nil on any other role, or for a stranger.
func (r *raft) progressOf(id uint64) *tracker.Progress {
	if r.leader == nil {
		return nil
	}
	return r.leader.peers.Get(id)
}
