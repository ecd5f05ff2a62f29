package raft

import pb "github.com/millrace/millrace/raft/raftpb"

// The synchronous mode is the asynchronous one with the workers in the caller's hands: it saves, sends and applies a Ready
// in line, and by Advance says that the workers have answered. So the answers are prepared when the Ready is accepted,
// and stepped in order when Advance comes. Peers may have been heard meanwhile. The append worker's answer therefore
// has no mark: with one write under way at a time, all that was handed out and not replaced since is durable, also
// when a new leader has appended to it. (Entries that are applied must be among those, or applied passes durable.)

// acceptSync moves what waits for the write: answers to itself until Advance, those to peers to the end of Messages,
// which the caller sends after it has saved.
func (rn *RawNode) acceptSync(committed []pb.Entry) {
	invariant(!rn.awaitingAdvance, "Ready is called again only after Advance")
	rn.awaitingAdvance = true
	out := &rn.raft.out
	for i := range out.afterAppend.waiting {
		if m := &out.afterAppend.waiting[i]; m.To == rn.raft.id {
			rn.answerOnAdvance(m)
		} else {
			*out.now.place() = *m
		}
	}
	out.afterAppend.drop()
	if len(committed) > 0 {
		rn.onAdvance = append(rn.onAdvance, rn.applyAck(committed))
	}
}

// answerOnAdvance keeps an answer. An acknowledgement of the own log covers the one before it.
func (rn *RawNode) answerOnAdvance(m *pb.Message) {
	if n := len(rn.onAdvance); n > 0 {
		if before := &rn.onAdvance[n-1]; m.Type == pb.MsgAppResp && before.Type == pb.MsgAppResp && m.Term == before.Term {
			before.Index = max(before.Index, m.Index)
			return
		}
	}
	rn.onAdvance = append(rn.onAdvance, *m)
}

// Advance says that everything in the last Ready is done. Synchronous mode only; the argument is not read.
func (rn *RawNode) Advance(Ready) {
	invariant(!rn.async, "Advance belongs to synchronous mode; in asynchronous mode the workers answer by Step")
	rn.awaitingAdvance = false
	if u := &rn.raft.log.unstable; u.snapshotInProgress {
		rn.raft.handleSnapshotStable(u.snapshot.Metadata.Index)
	}
	rn.raft.log.unstable.stableInProgress()
	for i := range rn.onAdvance {
		err := rn.step(&rn.onAdvance[i])
		if err != nil && rn.Err() == nil {
			invariant(false, "a node accepts its own workers' answers: %v", err)
		}
	}
	clear(rn.onAdvance) // of the node's own use only, so it can be used again
	rn.onAdvance = rn.onAdvance[:0]
}
