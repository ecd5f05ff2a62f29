package raft

import (
	"encoding/binary"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// A node without authority may lack entries that it has acknowledged: a power cut has taken them in a mode
// that acknowledges early, or its log was damaged and repaired. It casts no vote and does not campaign, and
// no leader counts what it says. It is fed like any follower, and has authority again when it holds durably
// what a leader had committed when it came. Decision 0021 has rule and proof.
//
// A run of such a node has a number, its life, which is higher than that of every earlier run. The leader
// answers to a new life with a new epoch: it forgets what the node has acknowledged, and counts from now on
// only answers that carry the epoch. So it tells them from late answers of an earlier life. Messages carry
// this in Context, which acknowledgements and appends leave empty otherwise:
//
//	leader to node      18 bytes: 'N', epoch, life, 1 if that life may have authority again
//	                    in MsgApp for the rest of the term; in MsgHeartbeat, instead of a read position, until
//	                    the node has authority
//	node to leader      19 bytes: 'L', epoch, life, 1 if terms may be missing too, 1 for an acknowledgement
//	                    in MsgAppResp and in MsgHeartbeatResp of a node without authority; the epoch is 0 if
//	                    the node does not know one
//	                    9 bytes: 'E', epoch
//	                    in answers to messages with a notice by a node with authority
//
// An acknowledgement without authority travels as a rejection. A leader that does not know this file would
// count any other acknowledgement.
//
// Invariant: an answer with an epoch was sent after the leader had forgotten what came before that epoch.

const (
	noticeKind, lostKind, epochKind    = 'N', 'L', 'E'
	noticeBytes, lostBytes, epochBytes = 18, 19, 9
)

// authority is what a node knows of its own authority.
type authority struct {
	without    bool
	lacksTerms bool   // terms and votes may be missing too
	life       uint64 // of this run
	epoch      uint64 // that the leader of this term has given to this node; 0: none is known
	regains    bool   // a leader has said that this life may have authority again
}

// standing is the part of an answer that says with which authority it was given.
type standing struct {
	epoch         uint64
	lost          bool // the sender is without authority, in this life:
	life          uint64
	lacksTerms    bool
	acknowledging bool // it is an acknowledgement, although it says Reject
}

// returning is what a leader knows of a member that has come without authority in this leader's term.
type returning struct {
	epoch, life uint64
	lacksTerms  bool
	authority   bool // it has authority again
	asked       bool
	position    uint64 // of the round that confirms this leader,
	target      uint64 // and what was committed when it was asked
}

// noticeOf returns the Context of messages to a member: nil for one that has always had authority.
func (r *raft) noticeOf(id uint64, pr *tracker.Progress) []byte {
	if len(r.leader.returning) == 0 {
		return nil
	}
	b := r.leader.returning[id]
	if b == nil {
		return nil
	}
	may := byte(0)
	if b.authority || r.mayReturn(id, pr, b) {
		may = 1
	}
	notice := binary.LittleEndian.AppendUint64(append(make([]byte, 0, noticeBytes), noticeKind), b.epoch)
	return append(binary.LittleEndian.AppendUint64(notice, b.life), may)
}

// mayReturn reports whether a member may have authority again: it holds durably what was committed when it
// came, and the members that this leader needs for that have confirmed since that it still leads.
func (r *raft) mayReturn(id uint64, pr *tracker.Progress, b *returning) bool {
	return b.asked && pr.Match >= b.target && r.confirmed(id, b)
}

// confirmed reports whether a quorum has answered the round that was asked for a member: counted without it,
// and without others that have no authority. If the member may have forgotten terms or votes, all voters with
// authority must have answered.
func (r *raft) confirmed(id uint64, b *returning) bool {
	s := &r.leader.reads
	if s.released < b.position {
		return false
	}
	if !b.lacksTerms {
		return true
	}
	for i := range r.leader.members {
		m := &r.leader.members[i]
		if m.ID != id && m.ID != r.id && !m.Progress.WithoutAuthority && r.conf.IsVoter(m.ID) && s.echoed[m.ID] < b.position {
			return false
		}
	}
	return true
}

// awaitsEchoes reports whether heartbeats must go on carrying a position although no read waits.
func (l *leader) awaitsEchoes() bool {
	for id, b := range l.returning {
		if pr := l.members.Get(id); pr != nil && b.asked && !b.authority && b.lacksTerms {
			return true
		}
	}
	return false
}

// hearStanding handles what an answer says about the authority of its sender, and reports whether the rest of
// the answer may be believed. It may not if an earlier life of the sender gave it.
func (r *raft) hearStanding(from uint64, pr *tracker.Progress, s standing) (current bool) {
	b := r.leader.returning[from]
	switch {
	case s.lost && (b == nil || s.life > b.life):
		r.forgetProgress(from, pr, s)
		return false
	case b == nil:
		return true
	case s.lost && s.life < b.life || s.epoch != b.epoch:
		return false
	case !s.lost && !b.authority:
		b.authority, pr.WithoutAuthority = true, false
		r.infof("%d: member %d has authority again", r.id, from)
	case !b.authority:
		r.askForReturn(b)
	}
	return true
}

// forgetProgress begins a new epoch with a member that has come without authority.
func (r *raft) forgetProgress(id uint64, pr *tracker.Progress, s standing) {
	l := r.leader
	if l.returning == nil {
		l.returning = map[uint64]*returning{}
	}
	l.epochs++
	b := &returning{epoch: l.epochs, life: s.life, lacksTerms: s.lacksTerms}
	l.returning[id] = b
	pr.LoseAuthority(true)
	if l.transfer.target == id {
		r.abortTransfer()
	}
	r.infof("%d: member %d is without authority: it may lack what it has acknowledged; it counts again when it has caught up", r.id, id)
	r.askForReturn(b)
}

// askForReturn notes what is committed, and asks the members to confirm that this node still leads. Before it
// has committed an entry of its term it may not know what is committed.
func (r *raft) askForReturn(b *returning) {
	if b.asked || r.log.committed < r.leader.termStart || r.leader.reads.full() {
		return
	}
	b.asked, b.target = true, r.log.committed
	b.position = r.leader.reads.lastPosition() + 1
	r.askQuorum(readRequest{from: None})
}

// reconsider does what a member's authority has made possible.
func (r *raft) reconsider() {
	if r.advanceCommit() {
		r.askParkedReads()
		r.broadcastAppend()
	}
	r.releaseReads()
}

// hearNotice handles the Context of an append, or of a heartbeat. It reports whether it is a notice, and
// whether that is for this life of a node without authority.
func (r *raft) hearNotice(context []byte) (told, ours bool) {
	if len(context) != noticeBytes || context[0] != noticeKind {
		return false, false
	}
	a := &r.authority
	a.epoch = max(a.epoch, binary.LittleEndian.Uint64(context[1:]))
	ours = a.without && binary.LittleEndian.Uint64(context[9:]) == a.life
	if ours && context[17] == 1 {
		a.regains = true
	}
	return true, ours
}

// withStanding completes an answer to a leader.
func (r *raft) withStanding(m raftpb.Message) raftpb.Message {
	a := &r.authority
	if a.without {
		flags := [2]byte{}
		if a.lacksTerms {
			flags[0] = 1
		}
		if m.Type == raftpb.MsgAppResp && !m.Reject {
			m.Reject, flags[1] = true, 1
		}
		m.Context = binary.LittleEndian.AppendUint64(append(make([]byte, 0, lostBytes), lostKind), a.epoch)
		m.Context = append(binary.LittleEndian.AppendUint64(m.Context, a.life), flags[:]...)
	} else if a.epoch > 0 && m.Context == nil {
		m.Context = binary.LittleEndian.AppendUint64(append(make([]byte, 0, epochBytes), epochKind), a.epoch)
	}
	return m
}

// standingOf decodes the Context of an answer. The Context of a heartbeat's answer may be a read position.
func standingOf(m *raftpb.Message) (s standing, err error) {
	c := m.Context
	switch {
	case len(c) == 0 || m.Type == raftpb.MsgHeartbeatResp && len(c) == positionBytes:
	case len(c) == epochBytes && c[0] == epochKind:
		s.epoch = binary.LittleEndian.Uint64(c[1:])
	case len(c) == lostBytes && c[0] == lostKind:
		s = standing{
			epoch:         binary.LittleEndian.Uint64(c[1:]),
			lost:          true,
			life:          binary.LittleEndian.Uint64(c[9:]),
			lacksTerms:    c[17] != 0,
			acknowledging: c[18] != 0,
		}
	case m.Type == raftpb.MsgHeartbeatResp:
		return s, &PeerError{From: m.From, Rule: "heartbeat answer echoes a read position of the wrong length", Have: uint64(len(c)), Want: positionBytes}
	default:
		return s, &PeerError{From: m.From, Rule: "context of an acknowledgement has a length that none has", Have: uint64(len(c)), Want: lostBytes}
	}
	return s, nil
}

// mayForward reports whether a follower may forward a request to its leader; own is one that its application
// has just made. A node that has lost a term may follow the leader of an earlier one, which follows this
// node: it led the term that it has lost. What peers ask would go back and forth between the two until the
// next election.
func (r *raft) mayForward(own bool) bool { return own || !r.authority.without }

// WithoutAuthority reports whether this node is without authority (Config.WithoutAuthority, Regain).
func (rn *RawNode) WithoutAuthority() bool { return rn.raft.authority.without }

// MayRegain reports whether a leader has said that this node holds what it needs to have authority again, in
// this run. It stays true until Regain.
func (rn *RawNode) MayRegain() bool { a := &rn.raft.authority; return a.without && a.regains }

// Regain gives the node authority again, if MayRegain. The application may remove its mark from the disk when
// everything that the node has written is durable. A node that is started without authority once more,
// although it has lost nothing, is safe: so the mark may also stay.
func (rn *RawNode) Regain() {
	if rn.MayRegain() {
		rn.raft.authority.without, rn.raft.authority.regains = false, false
		rn.raft.infof("%d has authority again", rn.raft.id)
	}
}
