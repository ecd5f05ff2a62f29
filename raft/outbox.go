package raft

import "github.com/millrace/millrace/raft/raftpb"

// outbox holds what leaves with the next Ready. Its two arenas state the durability rule: a message in now
// may leave at once, a message in afterAppend only when everything that was handed out for writing so far,
// the write of this Ready included, is durable.
type outbox struct {
	now         messageArena
	afterAppend messageArena // the responses of the apply worker are cut from here too
	// ownAck is the last entry that a leader has appended to its own log. One acknowledgement, after the
	// other messages in afterAppend, covers everything that the leader appended since the last Ready.
	ownAck raftpb.EntryID
	// ack is the latest acknowledgement to a leader that was put in afterAppend. ackHandedOut is the latest
	// one that was handed out with a write, in asynchronous mode.
	ack, ackHandedOut acknowledgement

	reads        []ReadState // answered
	droppedReads [][]byte    // contexts of reads that will not be answered
}

// acknowledgement is what a leader is told once it is durable: the log matches the leader's through index.
type acknowledgement struct {
	term, to, epoch uint64
	without         bool // without authority
	index           uint64
}

// acknowledgement returns what this node would tell a leader now.
func (r *raft) acknowledgement(to, index uint64) acknowledgement {
	return acknowledgement{r.term, to, r.authority.epoch, r.authority.without, index}
}

// sameAuthor reports whether two acknowledgements differ in the index at most.
func (a acknowledgement) sameAuthor(b acknowledgement) bool {
	a.index = b.index
	return a == b
}

// answersWrite reports whether a message or an acknowledgement waits for the next write.
func (o *outbox) answersWrite() bool { return len(o.afterAppend.waiting) > 0 || o.ownAck.Index > 0 }

// send completes a message and puts it in the arena that its type belongs to. Appends and the messages to
// storage workers, which are many, are written directly into an arena (replicate.go, asyncstorage.go).
func (r *raft) send(m raftpb.Message) {
	if m.From == None { // a forwarded message keeps its sender
		m.From = r.id
	}
	if m.Term == 0 && m.Type != raftpb.MsgProp && m.Type != raftpb.MsgReadIndex {
		m.Term = r.term
	}
	arena := &r.out.now
	if speaksOfUndurableState(m.Type) {
		arena = &r.out.afterAppend
	} else if m.To == r.id {
		invariant(false, "a message to itself waits for the disk: %v", m.Type)
	}
	*arena.next() = m
	if m.Snapshot != nil {
		arena.addPayload(uint64(len(m.Snapshot.Data)))
	}
	arena.addPayload(payloadSize(m.Entries))
}

// speaksOfUndurableState reports whether a message of type t makes a promise that the disk must hold first:
// an acknowledgement of an append, a vote, or a request for votes. A request for votes announces a new term,
// the node's vote for itself and its last entry. If it left at once, a candidate could win, crash before its
// write, forget that it had asked, and lead the same term a second time with other entries. It could also
// count a late vote, which was given to a longer log than it still has, and lose a committed entry.
func speaksOfUndurableState(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgAppResp, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp, raftpb.MsgVote:
		return true
	}
	return false
}
