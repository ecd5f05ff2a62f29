package host

import (
	"errors"

	"github.com/millrace/millrace/internal/planted"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/wal"
)

// A full disk still votes. The log refuses entries while the disk is full, and keeps a reserve for writes
// without entries. The refused round waits, with all behind it; but term and vote may be written ahead of it,
// and then the answers leave that speak of term and vote only. (raft/doc.go: the one exception to the order
// of the append queue.) Otherwise one full disk of three would keep the other two from electing.
//
// What is written ahead is the newest term and vote that are queued, and the commit index that the log has. A
// newer commit index would be safe only beside the entries that it speaks of: they may be in the refused
// round, and may be there to take the place of others that the log still holds. Lowering it to the end of the
// log does not help, for the same reason.
//
// What leaves (mayOvertake) was true when the core said it and stays true after a crash that takes the
// refused entries. A vote is given to a log that is as good as this member's log in memory. All that this
// member has ever acknowledged is in that log and on its disk. So it does not matter for the vote whether the
// rest gets there.
//
// What stays: acknowledgements of entries and the refusals of appends, which speak of the log; and the
// request for votes, with this member's vote for itself, since the request names the last entry. So a full
// member votes and does not campaign. Nor does it try to (Group.pass): a candidate that cannot ask only
// raises its term, and makes others wait.
//
// The order of what stays is kept, and each answer is given once. When there is room again, the round is
// written whole; its hard state takes the term and vote that have overtaken it, and keeps its own commit
// index (stated.raise).

// mayOvertake reports whether an answer speaks of term and vote only. A refused pre-vote and an
// acknowledgement of nothing tell of a term; so they may leave before it is durable, and this rule is
// stricter than need be.
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

// overtaking is what a queue keeps apart while the disk is full. It is bounded: two answers of a kind to each
// member.
type overtaking struct {
	full   bool
	newest raftpb.HardState // the last one that was queued, also while the disk is not full
	early  []raftpb.Message // answers that may leave when the term and vote of newest are durable
}

// split takes the answers that may overtake from a message. The array of the answers belongs to the core.
func (o *overtaking) split(m *raftpb.Message) {
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

// fill begins to keep apart what may overtake: of what was taken and refused, of what is queued, and of what
// comes.
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

// drain ends that. Answers that found no room for their term and vote wait their turn, behind the hard state
// that they need.
func (q *queue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = false
	if len(q.early) > 0 {
		m := raftpb.Message{Responses: q.early}
		q.queued, q.owns, q.early = append(q.queued, m), true, nil
		q.bytes += messageBytes(&m)
		q.held.Add(messageBytes(&m))
	}
}

// takeEarly returns the answers that may overtake, and the hard state whose term and vote they wait for.
func (q *queue) takeEarly() (newest raftpb.HardState, early []raftpb.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	early, q.early = q.early, nil
	return q.newest, early
}

// putBack returns answers that could not be given yet.
func (q *queue) putBack(early []raftpb.Message) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range q.early {
		early = addResponse(early, &q.early[i])
	}
	q.early = early
}

// overtake writes term and vote ahead of the refused round, if answers wait for them or always is set, and
// reports whether it wrote. The answers are a part of the next sync, and leave after it.
func (w *appendWorker) overtake(always bool) (wrote bool) {
	newest, early := w.takeEarly()
	if len(early) == 0 && !(always && behind(w.stated.hs, newest)) {
		return false
	}
	ahead := raftpb.HardState{Term: newest.Term, Vote: newest.Vote, Commit: w.stated.hs.Commit}
	if planted.OvertakeCommit {
		ahead.Commit = newest.Commit
	}
	if behind(w.stated.hs, ahead) {
		write := wal.Write{Group: w.outgoing.group, HardState: ahead}
		err := w.log.Append([]wal.Write{write})
		if errors.Is(err, wal.ErrDiskFull) {
			w.putBack(early)
			return false
		}
		if err != nil {
			w.stop(err)
			return false
		}
		w.stated.wrote(&write)
		w.sync = true
	}
	w.round, w.hasRound = append(w.round, raftpb.Message{Responses: early}), true
	return true
}
