package raft

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft/confchange"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/raft/tracker"
)

// Snapshots (thesis chapter 5). A follower whose next entry the leader has compacted away is sent the state machine as it
// was at some index, in place of the entries through it. What the core handles is the snapshot's metadata, and the
// moment: making, moving and installing the data is the application's work, however long that takes.
//
// A snapshot replaces the follower's log and its configuration at once, in memory; the disk follows with the next
// MsgStorageAppend (Snapshot first, then any Entries in the same message), and the answer to the leader waits for it.
// Until then nothing is handed out for apply and the follower does not campaign.
//
// Invariant: a snapshot never takes back what is committed, and is never installed over a log that already has its last
// entry: there the entries after it are of use, and it says no more than a commit index.

// SnapshotStatus is what became of a snapshot that was sent.
type SnapshotStatus int

// SnapshotFinish: it has arrived. SnapshotFailure: it was lost, or could not be installed.
const (
	SnapshotFinish  SnapshotStatus = 1
	SnapshotFailure SnapshotStatus = 2
)

// sendSnapshot sends the snapshot that storage has, instead of entries that it no longer has, and reports whether it did. One
// that is still being made is asked for again when the follower is next heard.
func (r *raft) sendSnapshot(to uint64, pr *tracker.Progress) bool {
	if !pr.RecentActive {
		return false // a snapshot is too much to send into the dark
	}
	s, err := r.log.storage.Snapshot()
	switch index, first := s.Metadata.Index, r.log.firstIndex(); {
	case errors.Is(err, ErrSnapshotTemporarilyUnavailable):
		return false
	case err != nil:
		r.log.fail(err)
		return false
	case index == 0 || index+1 < first:
		r.warningf("%d cannot help %d, which needs a snapshot: storage has one through %d, but its log begins at %d; compact only what a snapshot holds", r.id, to, index, first)
		return false
	}
	pr.BecomeSnapshot(s.Metadata.Index)
	r.infof("%d sends %d a snapshot through %d, as its log begins at %d", r.id, to, s.Metadata.Index, r.log.first)
	r.send(raftpb.Message{Type: raftpb.MsgSnap, To: to, Snapshot: &s})
	return true
}

// handleSnapshot is the receiver's half (thesis figure 5.3).
func (r *raft) handleSnapshot(from uint64, s *raftpb.Snapshot) error {
	config, err := r.implausibleSnapshot(from, s)
	if err != nil {
		return err
	}
	index := s.Metadata.Index
	switch {
	case index <= r.log.committed:
		// Stale. What is committed here is in every leader's log, so it can be acknowledged.
	case r.log.matches(raftpb.EntryID{Term: s.Metadata.Term, Index: index}):
		r.log.commitTo(index)
	default:
		r.restore(s, config)
	}
	r.send(raftpb.Message{Type: raftpb.MsgAppResp, To: from, Index: r.log.committed})
	return nil
}

// implausibleSnapshot refuses what no leader sends, and reads the configuration of what one may have sent. A node that is no
// member in it may install it all the same: it is on its way to membership, or out of it, by entries that follow, and
// takes no part in elections meanwhile.
func (r *raft) implausibleSnapshot(from uint64, s *raftpb.Snapshot) (tracker.Config, error) {
	if s == nil || s.Metadata.Index == 0 || s.Metadata.Term == 0 {
		return tracker.Config{}, &PeerError{From: from, Rule: "its snapshot has no index or no term", Want: 1}
	}
	if have := s.Metadata.Index; have > maxIndex {
		return tracker.Config{}, &PeerError{From: from, Rule: "its snapshot ends beyond what a log can reach", Have: have, Want: maxIndex}
	}
	if have := s.Metadata.Term; have > r.term {
		return tracker.Config{}, &PeerError{From: from, Rule: "its snapshot is of a later term than its leader", Have: have, Want: r.term}
	}
	if id := (raftpb.EntryID{Term: s.Metadata.Term, Index: s.Metadata.Index}); r.log.contradictsCommitted(id) || r.log.fallsBehindCommitted(id) {
		return tracker.Config{}, &PeerError{From: from, Rule: "its snapshot contradicts a committed entry", Have: id.Index, Want: r.log.committed + 1}
	}
	config, err := r.restored(s.Metadata.ConfState)
	if err == nil && len(config.Voters[0]) == 0 {
		err = confchange.ErrNoVoters
	}
	if err != nil {
		return tracker.Config{}, &PeerError{From: from, Rule: fmt.Sprintf("the configuration in its snapshot makes no sense: %v", err), Have: s.Metadata.Index, Want: r.log.committed + 1}
	}
	return config, nil
}

// restore puts a snapshot in place of log and configuration.
func (r *raft) restore(s *raftpb.Snapshot, config tracker.Config) {
	if r.superseded == nil {
		before := r.conf
		r.superseded = &before
	}
	r.log.restore(s, r.term)
	r.conf = config
	r.infof("%d installs a snapshot through %d of term %d; its configuration is %s", r.id, s.Metadata.Index, s.Metadata.Term, config)
}

// handleSnapshotStable takes the append worker's acknowledgement of a snapshot. It is good in every term: what is
// installed is committed.
func (r *raft) handleSnapshotStable(index uint64) {
	r.log.snapshotStable(index)
	if r.log.unstable.snapshot == nil {
		r.superseded = nil
	}
}

// handleSnapshotStatus is the transport's word on a snapshot. Either way the follower is probed when it is next heard:
// from after the snapshot if it arrived, as before if not.
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

// ReportSnapshot tells a leader what became of a snapshot that it sent to a member. Until it is called, or the member
// answers from where its log goes on, that member is sent nothing else, so a snapshot that fails must be reported.
func (rn *RawNode) ReportSnapshot(id uint64, status SnapshotStatus) {
	_ = rn.step(&raftpb.Message{Type: raftpb.MsgSnapStatus, From: id, Reject: status == SnapshotFailure}) // local: nothing to refuse
}
