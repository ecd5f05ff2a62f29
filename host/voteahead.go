package host

import (
	"errors"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// A full disk still votes. While the disk is full, the log refuses entries and reserves space for writes
// without entries. The refused round waits, with everything behind it. But term and vote may be written ahead
// of it, and then the answers leave that concern only term and vote. (This is the one exception in
// raft/doc.go to the order of the append queue.) Otherwise one full disk of three would keep the other two
// from electing a leader.
//
// The write ahead carries the newest queued term and vote, and the commit index that the log already has. A
// newer commit index would be safe only together with the entries that it covers. They may be in the refused
// round, and may replace other entries that the log still holds. Lowering the commit index to the end of the
// log does not help, for the same reason.
//
// The answers that leave (mayOvertake) were true when the core gave them, and stay true after a crash that
// loses the refused entries. A vote is given to a log that is at least as good as this member's log in
// memory. Everything that this member has ever acknowledged is in that log and on its disk. So it does not
// matter for the vote whether the rest becomes durable.
//
// Acknowledgements of entries and refusals of appends stay, because they concern the log. So does the request
// for votes, with this member's vote for itself, because the request names the last entry. So a full member
// votes and does not campaign. It does not even try (Group.pass): a candidate that cannot ask for votes only
// raises its term and makes others wait.
//
// What stays keeps its order, and each answer is given once. When there is space again, the round is written
// whole. Its hard state takes the term and vote that have overtaken it, and keeps its own commit index
// (durableState.withNewestVote).

// mayOvertake reports whether an answer concerns only term and vote. A refused pre-vote and an
// acknowledgement of nothing carry a term, and could leave even before it is durable; this rule is stricter
// than necessary.
func mayOvertake(m *raftpb.Message) bool {
	if m.To == m.From {
		return false
	}
	switch m.Type {
	case raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		return true
	case raftpb.MsgAppResp:
		return m.Index == 0 && !m.Reject // to a leader or a candidate of an earlier term
	}
	return false
}

// voteAhead holds what a queue sets aside while the disk is full. It is bounded: two answers of each kind
// for each member.
type voteAhead struct {
	full   bool
	newest raftpb.HardState // the last one that was queued, also while the disk is not full
	early  []raftpb.Message // answers that may leave when the term and vote of newest are durable
}

// split removes the answers that may overtake from a message. The core owns the array of the answers, so it
// is copied.
func (o *voteAhead) split(m *raftpb.Message) {
	stays := 0
	for i := range m.Responses {
		if !mayOvertake(&m.Responses[i]) {
			stays++
		}
	}
	if stays == len(m.Responses) {
		return
	}
	kept := make([]raftpb.Message, 0, stays)
	for i := range m.Responses {
		if r := &m.Responses[i]; mayOvertake(r) {
			o.early = addResponse(o.early, r)
		} else {
			kept = append(kept, *r)
		}
	}
	m.Responses = kept
}

// fill starts to set aside what may overtake: from the round that was refused, from the queue, and from later
// messages.
func (q *queue) fill() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full {
		return
	}
	q.full = true
	for i := range q.taken {
		q.split(&q.taken[i])
	}
	for i := range q.queued {
		q.split(&q.queued[i])
	}
	q.owns = false
}

// drain stops that. Answers whose term and vote found no space wait their turn, behind the hard state that
// they need.
func (q *queue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = false
	if len(q.early) > 0 {
		m := raftpb.Message{Responses: q.early}
		q.queued, q.owns, q.early = append(q.queued, m), true, nil
		q.bytes += messageBytes(&m)
		q.hold(messageBytes(&m))
	}
}

// takeEarly returns the answers that may overtake, and the hard state with the term and vote that they wait
// for.
func (q *queue) takeEarly() (newest raftpb.HardState, early []raftpb.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	early, q.early = q.early, nil
	return q.newest, early
}

// putBack takes back answers that could not be given yet.
func (q *queue) putBack(early []raftpb.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.early {
		early = addResponse(early, &q.early[i])
	}
	q.early = early
}

// writeVoteAhead writes a group's term and vote ahead of its refused round, if answers wait for them or if
// always is set. It reports whether it wrote. The next sync covers the answers, and they leave after it.
func (l *appendLane) writeVoteAhead(q *appendQueue, always bool) (wrote bool) {
	newest, early := q.takeEarly()
	if len(early) == 0 && !(always && behind(q.stated.hs, newest)) {
		return false
	}
	ahead := raftpb.HardState{Term: newest.Term, Vote: newest.Vote, Commit: q.stated.hs.Commit}
	if behind(q.stated.hs, ahead) {
		write := wal.Write{Group: q.group.id, HardState: ahead}
		err := l.append([]wal.Write{write})
		if errors.Is(err, wal.ErrDiskFull) {
			q.putBack(early)
			return false
		}
		if err != nil {
			l.stop(err)
			return false
		}
		q.stated.wrote(&write)
		l.sync = true
	}
	q.round = append(q.round, raftpb.Message{Responses: early})
	l.join(q)
	return true
}
