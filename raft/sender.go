package raft

import "github.com/millrace/millrace/raft/raftpb"

// Who may send what. rejectSender looks at the sender of a message before the content is read: storage
// workers answer for the storage and nothing else; peers need a term, and only members may answer; this node
// itself is heard only in answers that waited for its own disk.

// senderRule says who may send one type of message. The zero value is the rule for a request from one node to
// another: it has a term, and it comes from a node other than this one.
type senderRule struct {
	from    origin
	term    termRule
	self    selfRule
	members bool // the sender must be a member, or the leader
}

type origin uint8

const (
	fromNode   origin = iota
	fromWorker        // an answer of a storage worker
	fromAnyone        // the sender is not looked at
	fromNobody        // the type never travels
)

type termRule uint8

const (
	termRequired termRule = iota
	termOptional          // the message may come from an application, which knows no term
	termAbsent
)

type selfRule uint8

const (
	selfRejected selfRule = iota
	selfFromDisk          // this node's own answer, which waited for its disk; it never rejects
	selfAccepted          // From is not the sender but the subject of the message
)

// senderRules has a rule for each type of message. A type without a row has the zero value.
var senderRules = [...]senderRule{
	raftpb.MsgHup:           {from: fromNobody},
	raftpb.MsgBeat:          {from: fromNobody},
	raftpb.MsgUnreachable:   {from: fromNobody},
	raftpb.MsgSnapStatus:    {from: fromNobody},
	raftpb.MsgCheckQuorum:   {from: fromNobody},
	raftpb.MsgForgetLeader:  {from: fromNobody},
	raftpb.MsgStorageAppend: {from: fromNobody},
	raftpb.MsgStorageApply:  {from: fromNobody},

	raftpb.MsgStorageAppendResp: {from: fromWorker},
	raftpb.MsgStorageApplyResp:  {from: fromWorker},

	raftpb.MsgApp:        {},
	raftpb.MsgSnap:       {},
	raftpb.MsgHeartbeat:  {},
	raftpb.MsgVote:       {},
	raftpb.MsgPreVote:    {},
	raftpb.MsgTimeoutNow: {},

	raftpb.MsgAppResp:       {self: selfFromDisk, members: true},
	raftpb.MsgVoteResp:      {self: selfFromDisk, members: true},
	raftpb.MsgPreVoteResp:   {self: selfFromDisk, members: true},
	raftpb.MsgHeartbeatResp: {members: true},
	raftpb.MsgReadIndexResp: {members: true},

	raftpb.MsgProp:           {from: fromAnyone, term: termAbsent},
	raftpb.MsgReadIndex:      {self: selfAccepted, term: termAbsent},   // From asked
	raftpb.MsgTransferLeader: {self: selfAccepted, term: termOptional}, // From is to lead
}

// rejectSender returns why a message is refused for its sender or its term, or nil.
func (r *raft) rejectSender(m *raftpb.Message) error {
	var rule senderRule
	if t := m.Type; t >= 0 && int(t) < len(senderRules) {
		rule = senderRules[t]
	}
	fromWorkerID := IsLocalMsgTarget(m.From)
	switch {
	case rule.from == fromWorker && fromWorkerID:
		return nil
	case rule.from == fromWorker || rule.from == fromNobody:
		return ErrStepLocalMsg
	case rule.term == termAbsent && m.Term != 0:
		return &PeerError{From: m.From, Rule: "forwarded request carries a term", Have: m.Term, Want: 0}
	case rule.from == fromAnyone:
		return nil
	case fromWorkerID || m.From == None:
		return &PeerError{From: m.From, Rule: "sender id is not the id of a node"}
	case m.Term > maxTerm:
		return &PeerError{From: m.From, Rule: "term is beyond what elections can reach", Have: m.Term, Want: r.term}
	case rule.term == termRequired && m.Term == 0:
		return &PeerError{From: m.From, Rule: "message has no term", Have: 0, Want: 1}
	case m.From == r.id && (rule.self == selfRejected || rule.self == selfFromDisk && m.Reject):
		return &PeerError{From: m.From, Rule: "sender id is this node's own"}
	case rule.members && m.From != r.id && m.From != r.lead && !r.isMember(m.From):
		return ErrStepPeerNotFound // a leader may be a member by a change that is not applied here yet
	}
	return nil
}
