package raft

import "github.com/millrace/millrace/raft/raftpb"

// outbox holds what leaves with the next Ready, in two queues that state the durability rule: now may leave at once,
// afterAppend only when everything handed out for writing so far, this Ready's writes included, is durable.
type outbox struct {
	now         slab
	afterAppend slab // what waits for the apply worker is carved from here too
	// ownAck is the last entry that a leader has appended to its own log: one acknowledgement, after the rest of
	// afterAppend, covers all that it appended since the last Ready.
	ownAck raftpb.EntryID
	// ack is the last acknowledgement to a leader that is in afterAppend, or was; ackHandedOut is the last one that was
	// handed out with a write, in asynchronous mode.
	ack, ackHandedOut acknowledgement

	reads        []ReadState // answered
	droppedReads [][]byte    // never to be answered, by context
}

// answersWrite reports whether there is something to be said when the next write is durable.
func (o *outbox) answersWrite() bool { return len(o.afterAppend.waiting) > 0 || o.ownAck.Index > 0 }

// send completes a message and puts it in its queue.
func (r *raft) send(m raftpb.Message) {
	if m.From == None { // what is passed on keeps the name it came with
		m.From = r.id
	}
	if m.Term == 0 && m.Type != raftpb.MsgProp && m.Type != raftpb.MsgReadIndex {
		m.Term = r.term
	}
	queue := &r.out.now
	if speaksOfUndurableState(m.Type) {
		queue = &r.out.afterAppend
	} else if m.To == r.id {
		invariant(false, "a message to itself waits for the disk: %v", m.Type)
	}
	*queue.place() = m
	if m.Snapshot != nil {
		queue.weigh(uint64(len(m.Snapshot.Data)))
	}
	queue.weigh(payloadSize(m.Entries))
}

// speaksOfUndurableState names the messages that promise something the disk must hold first: acknowledgements of appends
// and votes — and the request for votes, which tells of a new term, of the own vote and of the own last entry. Were it
// sent at once, a candidate could win, crash before its write, forget that it had asked, and lead the same term a second
// time with other entries; or count a late vote, given to a longer log than it still has, and lose a committed entry.
func speaksOfUndurableState(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgAppResp, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp, raftpb.MsgVote:
		return true
	}
	return false
}

// storageAppend places the write of this Ready: its entries and hard state, and what may be said once it is durable. The
// own acknowledgement of the entries comes last, so that those before it find them in memory. A write without entries
// has none: it changes nothing that could be acknowledged, and if it carries no vote and no term, it needs no sync.
func (rn *RawNode) storageAppend(entries []raftpb.Entry, hard raftpb.HardState) {
	r := rn.raft
	snapshot := r.log.unstable.nextSnapshot() // before the entries
	bytes := r.log.sizeOf(entries).payload
	if snapshot != nil {
		bytes += uint64(len(snapshot.Data))
	}
	if ack := r.out.ownAck; ack.Index > 0 {
		m := r.out.afterAppend.place()
		m.Type, m.To, m.From, m.Term, m.Index = raftpb.MsgAppResp, r.id, r.id, ack.Term, ack.Index
	}
	if len(entries) > 0 || snapshot != nil {
		rn.appendAck(entries, snapshot)
		r.out.afterAppend.weigh(bytes)
	}
	m := r.out.now.place()
	m.Type, m.To, m.From = raftpb.MsgStorageAppend, LocalAppendThread, r.id
	m.Entries, m.Snapshot = entries, snapshot
	m.Term, m.Vote, m.Commit = hard.Term, hard.Vote, hard.Commit
	m.Responses = r.out.afterAppend.take()
	r.out.ackHandedOut = r.out.ack
	r.out.now.weigh(bytes)
}

// appendAck places the acknowledgement that entries, the last of the log, and before them a snapshot, are durable. Its Term
// is the mark of the unstable log, and concerns the entries only.
func (rn *RawNode) appendAck(entries []raftpb.Entry, s *raftpb.Snapshot) {
	m := rn.raft.out.afterAppend.place()
	m.Type, m.To, m.From = raftpb.MsgStorageAppendResp, rn.raft.id, LocalAppendThread
	m.Term, m.Snapshot = rn.raft.log.unstable.mark, s
	if n := len(entries); n > 0 {
		m.Index, m.LogTerm = entries[n-1].Index, entries[n-1].Term
	}
}

// storageApply places the message that hands committed entries to the apply worker.
func (rn *RawNode) storageApply(entries []raftpb.Entry) {
	r := rn.raft
	bytes := r.log.sizeOf(entries).payload
	ack := r.out.afterAppend.place()
	ack.Type, ack.To, ack.From, ack.Entries = raftpb.MsgStorageApplyResp, r.id, LocalApplyThread, entries
	r.out.afterAppend.weigh(bytes)
	m := r.out.now.place()
	m.Type, m.To, m.From = raftpb.MsgStorageApply, LocalApplyThread, r.id
	m.Entries = entries
	m.Responses = r.out.afterAppend.take()
	r.out.now.weigh(bytes)
}
