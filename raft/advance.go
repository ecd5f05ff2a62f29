package raft

import "github.com/millrace/millrace/raft/raftpb"

// The synchronous mode is the asynchronous one with the workers in the caller's hands: it saves, sends and applies a Ready
// in line, and by Advance says that the workers have answered. So the answers are prepared when the Ready is accepted,
// and stepped in order when Advance comes. Peers may have been heard meanwhile. The append worker's answer therefore
// has no mark: with one write under way at a time, all that was handed out and not replaced since is durable, also
// when a new leader has appended to it. (Entries that are applied must be among those, or applied passes durable.)

// advance is what the workers answer when the present Ready is done.
type advance struct {
	due     bool             // a Ready has been taken
	answers []raftpb.Message // of the node to itself: votes
	ownAck  raftpb.EntryID   // 0: none
	applied uint64           // 0: nothing
	// installed is the last index in the snapshot of that Ready; 0: there was none. A newer one may be pending since.
	installed uint64
}

// acceptSync moves what waits for the write: answers to itself until Advance, those to peers to the end of Messages,
// which the caller sends after it has saved.
func (rn *RawNode) acceptSync(committed []raftpb.Entry) {
	invariant(!rn.onAdvance.due, "Ready is called again only after Advance")
	out, on := &rn.raft.out, &rn.onAdvance
	on.due, on.ownAck = true, out.ownAck
	if s := rn.raft.log.unstable.nextSnapshot(); s != nil {
		on.installed = s.Metadata.Index
	}
	for i := range out.afterAppend.waiting {
		if m := &out.afterAppend.waiting[i]; m.To == rn.raft.id {
			on.answers = append(on.answers, *m)
		} else {
			*out.now.place() = *m
		}
	}
	out.afterAppend.drop()
	if n := len(committed); n > 0 {
		on.applied = committed[n-1].Index
	}
}

// Advance says that everything in the last Ready is done. Synchronous mode only; the argument is not read.
func (rn *RawNode) Advance(Ready) {
	invariant(!rn.async, "Advance belongs to synchronous mode; in asynchronous mode the workers answer by Step")
	on, r := rn.onAdvance, rn.raft
	rn.onAdvance = advance{}
	if on.installed > 0 {
		r.handleSnapshotStable(on.installed)
	}
	r.log.unstable.stableInProgress()
	for i := range on.answers {
		err := rn.step(&on.answers[i])
		if err != nil && rn.Err() == nil {
			invariant(false, "a node accepts its own workers' answers: %v", err)
		}
	}
	if on.ownAck.Index > 0 && on.ownAck.Term == r.term && rn.Err() == nil {
		if err := r.handleAppendReply(r.id, appendReply{index: on.ownAck.Index}); err != nil {
			invariant(false, "a leader accepts its own acknowledgement: %v", err)
		}
	}
	if on.applied > 0 && rn.Err() == nil {
		r.handleApplied(on.applied)
	}
	r.checkCursors()
}
