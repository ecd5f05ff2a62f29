package raft

import (
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// The messages to the storage workers, and the responses that the workers send back.

// storageAppend adds the write of this Ready to the outbox: its entries and hard state, and the responses
// that may leave once it is durable. The response that makes the entries stable comes last, so that the
// responses before it still find the entries in memory. A write without entries and snapshot has no such
// response: it changes nothing that could be acknowledged, and without a new term or vote it needs no sync.
func (rn *RawNode) storageAppend(entries []raftpb.Entry, hard raftpb.HardState) {
	r := rn.raft
	snapshot := r.log.unstable.nextSnapshot() // written before the entries
	bytes := r.log.sizeOf(entries).payload
	if snapshot != nil {
		bytes += uint64(len(snapshot.Data))
	}
	if ack := r.out.ownAck; ack.Index > 0 {
		m := r.out.afterAppend.next()
		m.Type, m.To, m.From, m.Term, m.Index = raftpb.MsgAppResp, r.id, r.id, ack.Term, ack.Index
	}
	if len(entries) > 0 || snapshot != nil {
		rn.appendAck(entries, snapshot)
		r.out.afterAppend.addPayload(bytes)
	}
	m := r.out.now.next()
	m.Type, m.To, m.From = raftpb.MsgStorageAppend, LocalAppendThread, r.id
	m.Entries, m.Snapshot = entries, snapshot
	m.Term, m.Vote, m.Commit = hard.Term, hard.Vote, hard.Commit
	m.Responses = r.out.afterAppend.cut()
	r.out.ackHandedOut = r.out.ack
	r.out.now.addPayload(bytes)
}

// appendAck adds the response that entries, which end the log, and before them a snapshot are durable. Its
// Term is the ackTerm of the unstable log, which is about the entries only.
func (rn *RawNode) appendAck(entries []raftpb.Entry, s *raftpb.Snapshot) {
	m := rn.raft.out.afterAppend.next()
	m.Type, m.To, m.From = raftpb.MsgStorageAppendResp, rn.raft.id, LocalAppendThread
	m.Term, m.Snapshot = rn.raft.log.unstable.ackTerm, s
	if n := len(entries); n > 0 {
		m.Index, m.LogTerm = entries[n-1].Index, entries[n-1].Term
	}
}

// storageApply adds the message that hands committed entries, or a range of them, to the apply worker.
func (rn *RawNode) storageApply(w applyWork) {
	r := rn.raft
	bytes := r.log.sizeOf(w.entries).payload
	ack := r.out.afterAppend.next()
	ack.Type, ack.To, ack.From, ack.Entries = raftpb.MsgStorageApplyResp, r.id, LocalApplyThread, w.entries
	r.out.afterAppend.addPayload(bytes)
	m := r.out.now.next()
	m.Type, m.To, m.From = raftpb.MsgStorageApply, LocalApplyThread, r.id
	m.Entries = w.entries
	if w.entries == nil {
		m.Index, m.Commit, ack.Index = w.after, w.through, w.through
	}
	m.Responses = r.out.afterAppend.cut()
	r.out.now.addPayload(bytes)
}

// AwaitsAppend reports whether the answer of the append worker may make this node act at once. Otherwise the
// answer may wait for the next input, and need not wake the node. A follower's acknowledgements leave with
// the write, and it only notes what is durable. A leader's own disk commits nothing before others have
// acknowledged the same entries; if they do so later, their acknowledgement is an input.
func (rn *RawNode) AwaitsAppend() bool {
	r := rn.raft
	switch {
	case r.log.committed > r.log.durable() || r.log.unstable.snapshot != nil:
		return true
	case r.leader != nil:
		return r.ownDiskCommits()
	}
	return r.role != StateFollower
}

// AwaitsAcks reports whether a follower's acknowledgement of committed entries may make this leader act at
// once. That is so if it has not sent everything, its commit index included, to every follower. It is so
// while it transfers its leadership, or has a member that was without authority in its term. Otherwise such
// an acknowledgement may wait for the next input: it only notes progress. For a node that does not lead the
// answer is true.
func (rn *RawNode) AwaitsAcks() bool {
	r := rn.raft
	if r.leader == nil || r.transferring() || len(r.leader.returning) > 0 {
		return true
	}
	last := r.log.lastIndex()
	for i := range r.leader.members {
		m := &r.leader.members[i]
		if pr := &m.Progress; m.ID != r.id && (pr.State != tracker.StateReplicate || pr.Next <= last || pr.CanBumpCommit(r.log.committed)) {
			return true
		}
	}
	return false
}

// AwaitsApply reports whether the answer of the apply worker may make this node act at once. That is so if
// the hand-out of entries is paused, a leader is near its limit of unapplied bytes, or a membership change
// is not applied.
func (rn *RawNode) AwaitsApply() bool {
	r := rn.raft
	full := r.leader != nil && r.leader.uncommittedBytes > r.cfg.maxUncommittedBytes/2
	return full || r.log.apply.paused || len(r.log.changes.indexes) > 0 || r.conf.AutoLeave
}
