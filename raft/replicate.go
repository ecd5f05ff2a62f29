package raft

import (
	"errors"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// Replication (thesis §3.5 and §10.2). A follower is probed with one append at a time until the point where
// the logs match is found. Then appends are pipelined within a window of messages and bytes: Next advances
// optimistically.

type emptiness bool

const (
	evenIfEmpty      emptiness = true  // an append without entries still carries the commit index, and probes
	unlessEmpty      emptiness = false // only if there are entries to send
	maxAppendsInARow           = 1 << 10
)

func (r *raft) broadcastAppend() {
	members := r.leader.members
	for i := range members {
		if members[i].ID != r.id {
			r.sendAppend(members[i].ID, &members[i].Progress, evenIfEmpty)
		}
	}
}

// sendAppend sends one append, if the follower's state permits, and reports whether it did.
func (r *raft) sendAppend(to uint64, pr *tracker.Progress, empty emptiness) bool {
	if pr.IsPaused() {
		return false
	}
	prev := raftpb.EntryID{Index: pr.Next - 1}
	var err error
	if prev.Term, err = r.log.term(prev.Index); err != nil {
		return r.sendSnapshotFor(err, to, pr)
	}
	var entries []raftpb.Entry
	if pr.State != tracker.StateReplicate || !pr.Inflights.Full() {
		entries, err = r.log.entries(to, pr.Next, r.log.lastIndex()+1, r.cfg.maxMessageBytes)
		if pending(err) {
			pr.EntriesPending = true
			return false
		}
		if err != nil {
			return r.sendSnapshotFor(err, to, pr)
		}
	}
	if len(entries) == 0 && empty == unlessEmpty {
		return false
	}
	m := r.out.now.next()
	m.Type, m.To, m.From, m.Term = raftpb.MsgApp, to, r.id, r.term
	m.Index, m.LogTerm, m.Entries, m.Commit = prev.Index, prev.Term, entries, r.log.committed
	m.Context = r.noticeOf(to, pr)
	bytes := r.log.sizeOf(entries).payload
	r.out.now.addPayload(bytes)
	pr.SentEntries(len(entries), bytes+r.log.overhead(len(entries)))
	if len(entries) > 0 {
		pr.Asked(r.leader.ticks)
	}
	pr.SentCommit(r.log.committed)
	return true
}

// sendAppends fills the window of a follower. first says whether the first append may be empty.
func (r *raft) sendAppends(to uint64, pr *tracker.Progress, first emptiness) {
	for range maxAppendsInARow {
		if !r.sendAppend(to, pr, first) {
			return
		}
		first = unlessEmpty
	}
}

// sendSnapshotFor sends a snapshot if the entries to send are compacted.
func (r *raft) sendSnapshotFor(err error, to uint64, pr *tracker.Progress) bool {
	return errors.Is(err, ErrCompacted) && r.sendSnapshot(to, pr)
}

// handleAppendReply handles the answer of a follower, or of the leader's own disk.
func (r *raft) handleAppendReply(from uint64, a appendReply) error {
	pr := r.progressOf(from)
	if pr == nil {
		return nil
	}
	if a.index > r.log.lastIndex() {
		return &PeerError{From: from, Rule: "answer is about entries beyond the end of this leader's log", Have: a.index, Want: r.log.lastIndex()}
	}
	before, lacked := pr.Match, pr.WithoutAuthority
	pr.RecentActive = true
	if !r.hearStanding(from, pr, a.standing) {
		r.sendAppend(from, pr, evenIfEmpty) // with the epoch
		return nil
	}
	if lacked && !pr.WithoutAuthority {
		defer r.reconsider()
	}
	if a.rejected {
		pr.Answered(0, r.leader.ticks)
		r.handleAppendRejection(from, pr, a)
		return nil
	}
	pr.Answered(a.index, r.leader.ticks)
	// Index 0 acknowledges nothing: it answers a stale append (answerStale).
	confirmsProbe := a.index > 0 && pr.Match == a.index && pr.State == tracker.StateProbe
	if !pr.MaybeUpdate(a.index) && !confirmsProbe {
		return nil
	}
	switch pr.State {
	case tracker.StateProbe:
		pr.BecomeReplicate()
	case tracker.StateSnapshot:
		// If the log reaches back to the follower's last entry, the follower can continue from there, whether
		// or not it was the snapshot that brought it to this entry. If it has the snapshot but the log was
		// compacted beyond that, the follower needs the next snapshot, which is sent below.
		if pr.Match+1 >= r.log.firstIndex() || pr.Match >= pr.PendingSnapshot {
			pr.BecomeReplicate()
		}
	case tracker.StateReplicate:
		pr.Inflights.FreeLE(a.index)
	}
	switch {
	case a.index > r.log.committed && r.advanceCommit(): // an index below adds nothing to the quorum
		r.leader.committedBy = from
		r.askParkedReads()
		r.broadcastAppend()
	case from != r.id && pr.CanBumpCommit(r.log.committed):
		r.sendAppend(from, pr, evenIfEmpty)
	}
	if from != r.id {
		r.sendAppends(from, pr, unlessEmpty) // the window has space again
		if pr.Match > before {
			r.sendTimeoutNow(from, pr)
		}
	}
	return nil
}

// handleAppendRejection goes back to where the logs may match. The follower's hint skips terms that the
// follower cannot have; this function in turn skips terms that the leader cannot have.
func (r *raft) handleAppendRejection(from uint64, pr *tracker.Progress, a appendReply) {
	next := a.hint.Index
	if a.hint.Term > 0 {
		next = r.log.lastNotAfter(a.hint.Index, a.hint.Term).Index
	}
	if !pr.MaybeDecrTo(a.index, next) {
		return
	}
	if pr.State == tracker.StateReplicate {
		pr.BecomeProbe()
	}
	r.sendAppend(from, pr, evenIfEmpty)
}
