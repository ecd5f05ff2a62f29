package raft

// The synchronous mode is the asynchronous one with the workers in the caller's hands: it saves, sends and applies a Ready
// in line, and by Advance says that the workers have answered. So the answers are prepared when the Ready is accepted,
// and stepped in order when Advance comes. Peers may have been heard meanwhile. The append worker's answer therefore
// has no mark: with one write under way at a time, all that was handed out and not replaced since is durable, also
// when a new leader has appended to it. (Entries that are applied must be among those, or applied passes durable.)

// acceptSync moves what waits for the write: answers to itself until Advance, those to peers to the end of Messages,
// which the caller sends after it has saved.
func (rn *RawNode) acceptSync(rd *Ready) {
	invariant(!rn.awaitingAdvance, "Ready is called again only after Advance")
	rn.awaitingAdvance = true
	for _, m := range rn.raft.out.afterAppend {
		if m.To == rn.raft.id {
			rn.onAdvance = append(rn.onAdvance, m)
		} else {
			rd.Messages = append(rd.Messages, m)
		}
	}
	if len(rd.CommittedEntries) > 0 {
		rn.onAdvance = append(rn.onAdvance, rn.applyAck(rd.CommittedEntries))
	}
}

// Advance says that everything in the last Ready is done. Synchronous mode only; the argument is not read.
func (rn *RawNode) Advance(Ready) {
	invariant(!rn.async, "Advance belongs to synchronous mode; in asynchronous mode the workers answer by Step")
	answers := rn.onAdvance
	rn.onAdvance, rn.awaitingAdvance = nil, false
	if u := &rn.raft.log.unstable; u.snapshotInProgress {
		rn.raft.handleSnapshotStable(u.snapshot.Metadata.Index)
	}
	rn.raft.log.unstable.stableInProgress()
	for i := range answers {
		err := rn.step(&answers[i])
		invariant(err == nil || rn.Err() != nil, "a node accepts its own workers' answers: %v", err)
	}
}
