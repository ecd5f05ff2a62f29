package raft

import (
	"fmt"
	"math"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// leader is the state that only a leader has.
type leader struct {
	// members is the leader's view of every member. Its own match index is that of its own disk, and moves by
	// a message to itself when a write is durable (thesis §10.2.1).
	members tracker.Members
	voters  tracker.JointVoters
	// termStart is the index of the leader's first entry, which is the first entry that it may count for
	// commit.
	termStart        uint64
	committedBy      uint64 // whose acknowledgement moved the commit index last; None: none has
	heartbeatElapsed int
	pulsed           bool // the application sends its heartbeats
	// pendingConf is the last entry that may be a membership change. The next change waits until this entry
	// is applied.
	pendingConf uint64
	// uncommittedBytes counts the entries of this term that are not yet applied: payload and overhead.
	uncommittedBytes uint64
	transfer         transfer
	reads            reads
	// ticks counts the time since this node became leader. The lease ends at leaseUntil, unless an election
	// was ordered in this term.
	ticks, leaseUntil int
	orderedElection   bool
	// returning has the members that came without authority in this term, and epochs counts their lives.
	returning map[uint64]*returning
	epochs    uint64
}

func newLeader(r *raft) *leader {
	last := r.log.lastIndex()
	l := &leader{
		termStart: last + 1,
		// The last entry of an earlier leader may be a membership change. All that counts is that such a
		// change may not be applied yet, so there is no need to look for it.
		pendingConf: last,
	}
	l.setMembers(r.conf, tracker.MakeMembers(r.conf, last, r.cfg.maxInflightMsgs, r.cfg.maxInflightBytes))
	if own := l.members.Get(r.id); own != nil {
		own.Match = r.log.durable()
		own.RecentActive = true
	}
	return l
}

// setMembers replaces the view when the configuration changes.
func (l *leader) setMembers(c tracker.Config, members tracker.Members) {
	l.members, l.voters = members, tracker.MakeJointVoters(c, members)
	for id, b := range l.returning { // also one that was removed and is added again
		if pr := members.Get(id); pr != nil && !b.authority {
			pr.WithoutAuthority = true
		}
	}
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
			// This leader was removed or demoted since the last check, so an election timeout ago at most. A
			// leader that is not a voter takes no proposals, so another leader serves the group better. If
			// the members have not heard yet that the change is committed, this node's refusals will tell
			// them (learnCommitted).
			r.becomeFollower(r.term, None)
		case r.cfg.checkQuorum:
			r.checkQuorum()
		}
	}
	if r.role == StateLeader && r.leader.heartbeatElapsed >= r.cfg.heartbeatTicks && !r.leader.pulsed {
		r.leader.heartbeatElapsed = 0
		r.beat()
	}
}

// checkQuorum steps down if no quorum was heard since the last check (thesis §6.2): another leader serves the
// clients better than one that cannot commit.
//
// With CheckAppends it also steps down if no quorum answers its appends. Heartbeats alone prove little. They
// pass where appends are lost (a connection that is a black hole for large frames), and a member whose disk
// hangs answers them. A member counts as silent if it owes the answer to an append with entries, and has
// answered none for Config.AnswerTicks, by default an election timeout: neither with an acknowledgement nor
// with a rejection. Any answer starts its time again, so a slow member that still works is never silent. A
// member to which nothing was sent is not silent, and neither is one that is sent a snapshot or waits for a
// read of this leader's disk.
//
// This does not make the leadership wander where disks are slow. If a sync takes half an election timeout on
// every member, a busy member answers some append after each sync, and an idle one begins a sync when the
// append arrives. Where the syncs of a quorum take longer than AnswerTicks, the leader steps down, and the
// group has no leader for most of the time, because votes wait for the same disks. The table in
// Decision 0014 says how much that costs.
func (r *raft) checkQuorum() {
	members, now := r.leader.members, r.leader.ticks
	if !members.QuorumActive(r.conf, r.id, now, r.cfg.answerTicks) {
		if members.QuorumActive(r.conf, r.id, now, math.MaxInt) {
			r.infof("%d steps down: a quorum is alive, but no quorum has answered its appends for %d ticks", r.id, r.cfg.answerTicks)
		}
		r.becomeFollower(r.term, None)
		return
	}
	for i := range members {
		members[i].Progress.RecentActive = members[i].ID == r.id
	}
}

// handleProposal accepts commands on a leader, and forwards them on a follower that knows its leader.
func (r *raft) handleProposal(m *raftpb.Message) error {
	switch {
	case r.role == StateLeader:
		return r.propose(m.Entries)
	case r.role == StateFollower && r.lead != None && r.cfg.forwardProposals && r.mayForward(m.From == r.id):
		forward := *m
		forward.To, forward.From, forward.Term = r.lead, None, 0
		r.send(forward)
		return nil
	default:
		return ErrProposalDropped
	}
}

// propose appends commands to the leader's log and sends them to the followers. The commands are copied into
// the log, because their index and term are written there and the caller may keep its message.
func (r *raft) propose(entries []raftpb.Entry) error {
	p := survey(entries)
	p.bytes += r.log.overhead(len(entries))
	if reason := r.rejectProposal(entries, p); reason != nil {
		return reason
	}
	if !p.plain {
		for i := range entries {
			if entries[i].Type.ChangesMembers() {
				r.leader.pendingConf = r.log.lastIndex() + 1 + uint64(i)
			}
		}
	}
	r.appendOwn(entries)
	r.broadcastAppend()
	return nil
}

// proposal sums up the entries of a proposal.
type proposal struct {
	bytes uint64 // payload and overhead
	plain bool   // commands only
}

func survey(entries []raftpb.Entry) proposal {
	p := proposal{plain: true}
	for i := range entries {
		p.bytes += uint64(len(entries[i].Data))
		p.plain = p.plain && !entries[i].Type.ChangesMembers()
	}
	return p
}

// rejectProposal returns why a leader does not accept a proposal, or nil.
func (r *raft) rejectProposal(entries []raftpb.Entry, p proposal) error {
	if !r.promotable() || r.transferring() || len(entries) == 0 {
		return ErrProposalDropped
	}
	if !p.plain {
		if err := r.rejectChanges(entries); err != nil {
			return err
		}
	}
	// The first proposal always fits, however large it is; otherwise it could never be made.
	if held := r.leader.uncommittedBytes; held > 0 && p.bytes > 0 && held+p.bytes > r.cfg.maxUncommittedBytes {
		return ErrProposalDropped
	}
	return nil
}

// rejectChanges returns why one of the entries may not be proposed, or nil. At most one of them may be a
// membership change.
func (r *raft) rejectChanges(entries []raftpb.Entry) error {
	changes := 0
	for i := range entries {
		e := &entries[i]
		switch e.Type {
		case raftpb.EntryNormal, raftpb.EntryHost, raftpb.EntryBatch:
			continue
		case raftpb.EntryConfChange, raftpb.EntryConfChangeV2:
			changes++
		default:
			return fmt.Errorf("%w: entry %d of %d has the unknown type %d", ErrProposalDropped, i+1, len(entries), e.Type)
		}
		c, err := readConfChange(e)
		if err == nil && r.cfg.validateConfChanges {
			if changes > 1 {
				return fmt.Errorf("%w: have %d changes in one proposal, want at most 1", ErrConfChangeRefused, changes)
			}
			err = r.rejectConfChange(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// appendOwn appends entries to the log in this leader's term. The leader's acknowledgement of its own entries
// is a message that waits for its own disk.
func (r *raft) appendOwn(entries []raftpb.Entry) {
	r.leader.uncommittedBytes += r.log.held(r.log.appendOwn(entries, r.term))
	r.out.ownAck = raftpb.EntryID{Term: r.term, Index: r.log.lastIndex()}
}

// handleApplied handles the apply worker's acknowledgement of the entries through index.
func (r *raft) handleApplied(index uint64) {
	own := r.log.appliedTo(index, r.termStart())
	if r.leader != nil {
		r.leader.uncommittedBytes -= own
		r.leaveJoint()
	}
}

// termStart returns the index of this leader's first entry. Earlier leaders' proposals are never counted
// against the limit on unapplied bytes. On other roles termStart is beyond every entry.
func (r *raft) termStart() uint64 {
	if r.leader == nil {
		return noLimit
	}
	return r.leader.termStart
}

func (r *raft) broadcastHeartbeat() {
	position := r.leader.position()
	for i := range r.leader.members {
		if id := r.leader.members[i].ID; id != r.id {
			r.sendHeartbeat(id, &r.leader.members[i].Progress, position)
		}
	}
}

// sendHeartbeat keeps a follower's election timeout from expiring. Its commit index is capped at what the
// follower has acknowledged, because the follower may not have the rest.
func (r *raft) sendHeartbeat(to uint64, pr *tracker.Progress, position []byte) {
	commit := min(pr.Match, r.log.committed)
	if pr.WithoutAuthority {
		position = r.noticeOf(to, pr)
	}
	r.send(raftpb.Message{Type: raftpb.MsgHeartbeat, To: to, Commit: commit, Context: position})
	pr.SentCommit(commit)
}

// handleHeartbeatReply records that a follower is alive, and was alive when the reads through a position were
// asked. A follower that is behind is sent what it may have missed.
func (r *raft) handleHeartbeatReply(from uint64, s standing, context []byte) error {
	pr := r.progressOf(from)
	if pr == nil {
		return nil
	}
	if s.lost || s.epoch > 0 {
		context = nil
	}
	position, err := r.echoedPosition(from, context)
	if err != nil {
		return err
	}
	before := pr.WithoutAuthority
	if r.hearStanding(from, pr, s); before && !pr.WithoutAuthority {
		r.reconsider()
	}
	pr.RecentActive = true
	pr.MsgAppFlowPaused = false
	if pr.Match < r.log.lastIndex() || pr.State == tracker.StateProbe {
		r.sendAppend(from, pr, evenIfEmpty)
	}
	r.sendTimeoutNow(from, pr)
	r.recordEcho(from, position)
	return nil
}

// handleUnreachable handles the transport's report that appends may have been lost.
func (r *raft) handleUnreachable(id uint64) {
	if pr := r.progressOf(id); pr != nil && pr.State == tracker.StateReplicate {
		pr.BecomeProbe()
	}
}

// isMember reports whether id is in the configuration. A leader, which is asked at every acknowledgement,
// finds id among its members.
func (r *raft) isMember(id uint64) bool {
	if r.leader != nil {
		return r.leader.members.Get(id) != nil
	}
	return r.conf.IsMember(id)
}

// progressOf returns the leader's view of a member. It returns nil on any other role, and for a node that is
// not a member.
func (r *raft) progressOf(id uint64) *tracker.Progress {
	if r.leader == nil {
		return nil
	}
	return r.leader.members.Get(id)
}
