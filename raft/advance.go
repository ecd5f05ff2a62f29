package raft

import "github.com/millrace/millrace/raft/raftpb"

// In synchronous mode the caller does the work of the storage workers: it saves, sends and applies a Ready in
// line, and reports by Advance that all of it is done. So the workers' answers are prepared when the Ready is
// accepted, and stepped in order when Advance is called. Messages of peers may be stepped in between. The
// append worker's answer therefore carries no ackTerm: with one write under way at a time, every entry that
// was handed out and has not been replaced since is durable, even if a new leader has appended to it.
// (Applied entries must be among those, or applied would pass durable.)

// advance holds the workers' answers to the present Ready.
type advance struct {
	due     bool             // a Ready has been taken, and Advance has not been called
	answers []raftpb.Message // answers of the node to itself: votes
	ownAck  raftpb.EntryID   // zero: none
	applied uint64           // 0: nothing
	// installed is the last index of the snapshot in that Ready; 0: there was none. A newer snapshot may be
	// pending since.
	installed uint64
}

// acceptSync distributes the messages that wait for the write: answers to the node itself wait for Advance,
// and those to peers go to the end of Messages, which the caller sends after it has saved.
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
			*out.now.next() = *m
		}
	}
	out.afterAppend.discard()
	if n := len(committed); n > 0 {
		on.applied = committed[n-1].Index
	}
}

// Advance tells the node that everything in the last Ready is done. It is for synchronous mode only. The
// argument is not used.
func (rn *RawNode) Advance(Ready) {
	invariant(!rn.async, "Advance belongs to synchronous mode; in asynchronous mode the workers answer through Step")
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
