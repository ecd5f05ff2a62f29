package raft

import pb "github.com/millrace/millrace/raft/raftpb"

// outbox holds what leaves with the next Ready, in two queues that state the durability rule: now may leave at once,
// afterAppend only when everything handed out for writing so far, this Ready's writes included, is durable.
type outbox struct {
	now         []pb.Message
	afterAppend []pb.Message

	reads        []ReadState // answered
	droppedReads [][]byte    // never to be answered, by context
}

// send completes a message and puts it in its queue.
func (r *raft) send(m pb.Message) {
	if m.From == None { // what is passed on keeps the name it came with
		m.From = r.id
	}
	if m.Term == 0 && m.Type != pb.MsgProp && m.Type != pb.MsgReadIndex {
		m.Term = r.term
	}
	if speaksOfUndurableState(m.Type) {
		r.out.afterAppend = append(r.out.afterAppend, m)
		return
	}
	if m.To == r.id {
		invariant(false, "a message to itself waits for the disk: %v", m.Type)
	}
	r.out.now = append(r.out.now, m)
}

// speaksOfUndurableState names the messages that promise something the disk must hold first: acknowledgements of appends
// and votes — and the request for votes, which tells of a new term, of the own vote and of the own last entry. Were it
// sent at once, a candidate could win, crash before its write, forget that it had asked, and lead the same term a second
// time with other entries; or count a late vote, given to a longer log than it still has, and lose a committed entry.
func speaksOfUndurableState(t pb.MessageType) bool {
	switch t {
	case pb.MsgAppResp, pb.MsgVoteResp, pb.MsgPreVoteResp, pb.MsgVote:
		return true
	}
	return false
}

// storageAppend builds the write of this Ready: its entries and hard state, and what may be said once it is durable. The
// own acknowledgement of the entries comes last, so that those before it find them in memory. A write without entries
// has none: it changes nothing that could be acknowledged, and if it carries no vote and no term, it needs no sync.
func (rn *RawNode) storageAppend(rd *Ready) pb.Message {
	r := rn.raft
	m := pb.Message{
		Type:    pb.MsgStorageAppend,
		To:      LocalAppendThread,
		From:    r.id,
		Entries: rd.Entries,
		// Before the entries.
		Snapshot: r.log.unstable.nextSnapshot(),
	}
	if !IsEmptyHardState(rd.HardState) {
		m.Term, m.Vote, m.Commit = rd.HardState.Term, rd.HardState.Vote, rd.HardState.Commit
	}
	m.Responses = r.out.afterAppend
	if len(rd.Entries) > 0 || m.Snapshot != nil {
		m.Responses = append(m.Responses, rn.appendAck(rd.Entries, m.Snapshot))
	}
	return m
}

// appendAck is the acknowledgement that entries, the last of the log, and before them a snapshot, are durable. Its Term is
// the mark of the unstable log, and concerns the entries only.
func (rn *RawNode) appendAck(entries []pb.Entry, s *pb.Snapshot) pb.Message {
	m := pb.Message{
		Type:     pb.MsgStorageAppendResp,
		To:       rn.raft.id,
		From:     LocalAppendThread,
		Term:     rn.raft.log.unstable.mark,
		Snapshot: s,
	}
	if n := len(entries); n > 0 {
		m.Index, m.LogTerm = entries[n-1].Index, entries[n-1].Term
	}
	return m
}

// storageApply builds the message that hands committed entries to the apply worker.
func (rn *RawNode) storageApply(entries []pb.Entry) pb.Message {
	return pb.Message{
		Type:      pb.MsgStorageApply,
		To:        LocalApplyThread,
		From:      rn.raft.id,
		Entries:   entries,
		Responses: []pb.Message{rn.applyAck(entries)},
	}
}

func (rn *RawNode) applyAck(entries []pb.Entry) pb.Message {
	return pb.Message{
		Type:    pb.MsgStorageApplyResp,
		To:      rn.raft.id,
		From:    LocalApplyThread,
		Entries: entries,
	}
}
