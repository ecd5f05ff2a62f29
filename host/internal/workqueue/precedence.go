package workqueue

import "github.com/millrace/millrace/raft/raftpb"

// While a disk is full, term and vote overtake the entries that it refuses. Package appendlane (hardstate.go)
// says why, and which answers may. This file sets them aside.

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

// overtaking holds what a queue sets aside while the disk is full. It is bounded: two answers of each kind
// for each member.
type overtaking struct {
	full   bool
	newest raftpb.HardState // the last one that was queued, also while the disk is not full
	early  []raftpb.Message // answers that may leave when the term and vote of newest are durable
}

// split removes the answers that may overtake from a message. The core owns the array of the answers, so it
// is copied.
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

// StartOvertaking starts to set aside what may overtake: from the round that was refused, from the queue,
// and from later messages.
func (q *Queue) StartOvertaking() {
	mu := q.guard()
	mu.Lock()
	defer mu.Unlock()
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

// StopOvertaking stops that. Answers whose term and vote found no space wait their turn, behind the hard
// state that they need.
func (q *Queue) StopOvertaking() {
	mu := q.guard()
	mu.Lock()
	defer mu.Unlock()
	defer q.countWaiting()
	q.full = false
	if len(q.early) > 0 {
		m := raftpb.Message{Responses: q.early}
		q.queued, q.owns, q.early = append(q.queued, m), true, nil
		q.bytes += MessageBytes(&m)
		q.Hold(MessageBytes(&m))
	}
}

// DequeueEarly returns the answers that may overtake, and the hard state with the term and vote that they
// wait for.
func (q *Queue) DequeueEarly() (newest raftpb.HardState, early []raftpb.Message) {
	mu := q.guard()
	mu.Lock()
	defer mu.Unlock()
	early, q.early = q.early, nil
	return q.newest, early
}

// Requeue takes back answers that could not be given yet.
func (q *Queue) Requeue(early []raftpb.Message) {
	mu := q.guard()
	mu.Lock()
	defer mu.Unlock()
	for i := range q.early {
		early = addResponse(early, &q.early[i])
	}
	q.early = early
}

// DropAll drops what was taken and what is queued, if the log already has their newest term and vote.
func (q *Queue) DropAll(written raftpb.HardState) (done bool) {
	mu := q.guard()
	mu.Lock()
	defer mu.Unlock()
	defer q.countWaiting()
	if Behind(written, q.newest) {
		return false
	}
	q.Hold(-q.bytes - q.takenBytes)
	clear(q.queued)
	clear(q.taken)
	q.queued, q.taken = q.queued[:0], q.taken[:0]
	q.bytes, q.takenBytes = 0, 0
	q.marks.Store(0)
	q.overtaking = overtaking{newest: written}
	return true
}
