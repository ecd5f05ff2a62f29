package raft

import (
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// BasicStatus is a cheap copy of what a node knows about itself.
type BasicStatus struct {
	ID uint64
	raftpb.HardState
	SoftState
	// Applied is the last index that the application has acknowledged as applied (in synchronous mode by
	// Advance). It is not what was handed out.
	Applied uint64
	// LastIndex is the end of the log, and Durable the end of its part on this node's disk.
	LastIndex, Durable uint64
	// LeadTransferee is the target of a leader's transfer, or None.
	LeadTransferee uint64
	// CommittedBy is the member whose acknowledgement completed the quorum for the latest move of a
	// leader's commit index. It is the leader's own id for its own disk, and None if no acknowledgement has
	// moved the index.
	CommittedBy uint64
}

// BasicStatus returns the node's own cursors. It allocates nothing.
func (rn *RawNode) BasicStatus() BasicStatus {
	r := rn.raft
	s := BasicStatus{
		ID:        r.id,
		HardState: r.hardState(),
		SoftState: r.softState(),
		Applied:   r.log.applied,
		LastIndex: r.log.lastIndex(),
		Durable:   r.log.durable(),
	}
	if r.role == StateLeader {
		s.CommittedBy = r.leader.committedBy
	}
	if r.transferring() {
		s.LeadTransferee = r.leader.transfer.target
	}
	return s
}

// Leadership returns the node's term, the leader that it knows (None: none) and its role. It is the part of
// BasicStatus on which most decisions depend, and costs less.
func (rn *RawNode) Leadership() (term, lead uint64, role StateType) {
	return rn.raft.term, rn.raft.lead, rn.raft.role
}

// EntryTerm returns the term of the entry at index, whether or not it is durable here. ok is false if the log
// does not have that entry, or no longer has it. Together with the commit index it tells what has happened to
// a proposal before its entry is handed out.
func (rn *RawNode) EntryTerm(index uint64) (term uint64, ok bool) {
	term, err := rn.raft.log.term(index)
	return term, err == nil
}

// Status is a BasicStatus, the configuration and, on a leader, its view of every member.
type Status struct {
	BasicStatus
	Config   tracker.Config
	Progress map[uint64]tracker.Progress
}

// Status returns a copy that stays valid.
func (rn *RawNode) Status() Status {
	s := Status{BasicStatus: rn.BasicStatus(), Config: rn.raft.conf.Clone()}
	if l := rn.raft.leader; l != nil {
		s.Progress = make(map[uint64]tracker.Progress, len(l.members))
		for i := range l.members {
			pr := l.members[i].Progress
			pr.Inflights = pr.Inflights.Clone()
			s.Progress[l.members[i].ID] = pr
		}
	}
	return s
}

// ProgressType is a member's part in decisions, as WithProgress reports it.
type ProgressType byte

// ProgressTypePeer is a voter, ProgressTypeLearner a learner.
const (
	ProgressTypePeer ProgressType = iota
	ProgressTypeLearner
)

// WithProgress passes a leader's view of every member to visit, in ascending order of id, without the windows
// of in-flight appends. On another role it does nothing. It copies less than Status.
func (rn *RawNode) WithProgress(visit func(id uint64, kind ProgressType, pr tracker.Progress)) {
	if rn.raft.leader == nil {
		return
	}
	for _, p := range rn.raft.leader.members {
		kind := ProgressTypePeer
		if p.Progress.IsLearner {
			kind = ProgressTypeLearner
		}
		p.Progress.Inflights = nil
		visit(p.ID, kind, p.Progress)
	}
}
