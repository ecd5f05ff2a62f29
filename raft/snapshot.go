package raft

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft/confchange"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// Snapshots (thesis chapter 5). If the leader has compacted away the next entry of a follower, it sends the
// state machine as of some index in place of the entries through it. The core handles the metadata of a
// snapshot and the moment; the application makes, moves and installs the data, however long that takes.
//
// A snapshot replaces the follower's log and its configuration at once, in memory. The disk follows with the
// next MsgStorageAppend (Snapshot first, then any Entries in the same message), and the answer to the leader
// waits for it. Until then nothing is handed out for apply, and the follower does not campaign.
//
// Invariant: a snapshot never takes back what is committed. It is never installed over a log that already has
// its last entry: the entries after it are useful there, and the snapshot says no more than a commit index.

// SnapshotStatus is what happened to a snapshot that was sent.
type SnapshotStatus int

// SnapshotFinish: the snapshot has arrived. SnapshotFailure: it was lost, or could not be installed.
const (
	SnapshotFinish  SnapshotStatus = 1
	SnapshotFailure SnapshotStatus = 2
)

// sendSnapshot sends storage's snapshot in place of compacted entries, and reports whether it did. If storage
// is still making the snapshot, the leader asks again when it next hears the follower.
func (r *raft) sendSnapshot(to uint64, pr *tracker.Progress) bool {
	if !pr.RecentActive {
		return false // the follower may be gone, and a snapshot is expensive
	}
	s, err := r.log.storage.Snapshot()
	switch index, first := s.Metadata.Index, r.log.firstIndex(); {
	case errors.Is(err, ErrSnapshotTemporarilyUnavailable):
		return false
	case err != nil:
		r.log.fail(err)
		return false
	case index == 0 || index+1 < first:
		r.warningf("%d cannot send %d the snapshot that it needs: storage has one through %d, but the log begins at %d; compact only what a snapshot holds", r.id, to, index, first)
		return false
	}
	pr.BecomeSnapshot(s.Metadata.Index)
	r.infof("%d sends %d a snapshot through %d, because the log begins at %d", r.id, to, s.Metadata.Index, r.log.first)
	r.send(raftpb.Message{Type: raftpb.MsgSnap, To: to, Snapshot: &s})
	return true
}

// handleSnapshot is the receiver's half (thesis figure 5.3).
func (r *raft) handleSnapshot(from uint64, s *raftpb.Snapshot) error {
	if err := r.rejectSnapshot(from, s); err != nil {
		return err
	}
	config, err := r.snapshotConfig(from, s)
	if err != nil {
		return err
	}
	index := s.Metadata.Index
	switch {
	case index <= r.log.committed:
		// Stale. Every leader's log has what is committed here, so it can be acknowledged.
	case r.log.matches(raftpb.EntryID{Term: s.Metadata.Term, Index: index}):
		r.log.commitTo(index)
	default:
		r.restore(s, config)
	}
	r.send(r.withStanding(raftpb.Message{Type: raftpb.MsgAppResp, To: from, Index: r.log.committed}))
	return nil
}

// rejectSnapshot returns why no correct leader sends this snapshot, or nil.
func (r *raft) rejectSnapshot(from uint64, s *raftpb.Snapshot) error {
	if s == nil || s.Metadata.Index == 0 || s.Metadata.Term == 0 {
		return &PeerError{From: from, Rule: "snapshot has no index or no term", Want: 1}
	}
	id := raftpb.EntryID{Term: s.Metadata.Term, Index: s.Metadata.Index}
	switch {
	case id.Index > maxIndex:
		return &PeerError{From: from, Rule: "snapshot ends beyond what a log can reach", Have: id.Index, Want: maxIndex}
	case id.Term > r.term:
		return &PeerError{From: from, Rule: "snapshot is from a later term than its leader", Have: id.Term, Want: r.term}
	case r.log.contradictsCommitted(id) || r.log.fallsBehindCommitted(id):
		return &PeerError{From: from, Rule: "snapshot conflicts with a committed entry", Have: id.Index, Want: r.log.committed + 1}
	}
	return nil
}

// snapshotConfig returns the configuration in a snapshot, or why no correct leader sends it. A node that is
// not a member in it may install the snapshot nevertheless: entries that follow make it a member, or have
// removed it, and it takes no part in elections meanwhile.
func (r *raft) snapshotConfig(from uint64, s *raftpb.Snapshot) (tracker.Config, error) {
	config, err := r.restored(s.Metadata.ConfState)
	if err == nil && len(config.Voters[0]) == 0 {
		err = confchange.ErrNoVoters
	}
	if err != nil {
		return tracker.Config{}, &PeerError{From: from, Rule: fmt.Sprintf("configuration in a snapshot is invalid: %v", err), Have: s.Metadata.Index, Want: r.log.committed + 1}
	}
	return config, nil
}

// restore replaces the log and the configuration by a snapshot.
func (r *raft) restore(s *raftpb.Snapshot, config tracker.Config) {
	if r.superseded == nil {
		before := r.conf
		r.superseded = &before
	}
	r.log.restore(s, r.term)
	r.conf = config
	r.infof("%d installs a snapshot through %d of term %d; its configuration is %s", r.id, s.Metadata.Index, s.Metadata.Term, config)
}

// handleSnapshotStable handles the append worker's acknowledgement of a snapshot. It is valid in every term,
// because an installed snapshot is committed.
func (r *raft) handleSnapshotStable(index uint64) {
	r.log.snapshotStable(index)
	if r.log.unstable.snapshot == nil {
		r.superseded = nil
	}
}

// handleSnapshotStatus handles the transport's report on a snapshot. The follower is probed when it is next
// heard: from after the snapshot if it arrived, and from where it was before if not.
func (r *raft) handleSnapshotStatus(id uint64, failed bool) {
	pr := r.progressOf(id)
	if pr == nil || pr.State != tracker.StateSnapshot {
		return
	}
	if failed {
		pr.AbortSnapshot()
	}
	pr.BecomeProbe()
	pr.MsgAppFlowPaused = true
}

// ReportSnapshot tells a leader what happened to a snapshot that it sent to a member. The leader sends that
// member nothing else until it is called, or the member acknowledges an entry from which the log can
// continue. So a failed snapshot must be reported.
func (rn *RawNode) ReportSnapshot(id uint64, status SnapshotStatus) {
	_ = rn.step(&raftpb.Message{Type: raftpb.MsgSnapStatus, From: id, Reject: status == SnapshotFailure}) // local: nothing to refuse
}
