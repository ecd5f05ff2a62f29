package workqueue

import (
	"slices"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/internal/outbox"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Queue passes work of one group to a lane: the group puts, and the lane takes what has accumulated, up to a
// round.
//
// Other parts bound how much can wait, in bytes, with the overhead of an entry. The core bounds it on a
// leader (raft.Config.MaxUncommittedEntriesSize) and for what is applied (MaxCommittedSizePerReady). The
// host bounds it for what peers send (inbound.Receive). Those bounds do not cover messages without entries,
// and a peer can cause any number of them while a disk hangs. So they are merged (merge).
type Queue struct {
	Budget *budget.Budget // of all groups; nil: none
	// Lock guards what is queued. A lane gives its own: putting a message and calling the lane are one step
	// (EnqueueAnd). nil: the queue has a lock of its own.
	Lock *lock.Mutex
	own  lock.Mutex

	held    atomic.Int64 // bytes that are queued, taken or in a round
	waiting atomic.Int64 // length of queued

	queued []raftpb.Message
	bytes  int64        // of queued
	owns   bool         // the last queued message was merged: its Responses belong to the queue
	marks  atomic.Int32 // queued messages that carry a snapshot; changed under the lock
	overtaking

	taken      []raftpb.Message // the lane's, until it takes again
	takenBytes int64
}

// MaxRoundBytes bounds what a lane takes at once, and so one piece of its work. A message is never split,
// because its write is atomic; a larger one is taken alone.
const MaxRoundBytes = 8 << 20

// MaxShareBytes is what a group gets of a round while others wait.
const MaxShareBytes = 1 << 20

// messageOverhead is about how much memory a message takes besides what it names.
const messageOverhead = 192

// MessageBytes is about how much memory a message takes, without its responses.
func MessageBytes(m *raftpb.Message) int64 {
	n := messageOverhead + EntryBytes(m.Entries) + int64(len(m.Context))
	if m.Snapshot != nil {
		n += int64(len(m.Snapshot.Data))
	}
	return n
}

// EntryBytes is about how much memory entries take.
func EntryBytes(entries []raftpb.Entry) (n int64) {
	for i := range entries {
		n += raft.EntryOverhead + int64(len(entries[i].Data))
	}
	return n
}

func (q *Queue) guard() *lock.Mutex {
	if q.Lock != nil {
		return q.Lock
	}
	return &q.own
}

// Enqueue queues a message. The caller tells the lane after it.
func (q *Queue) Enqueue(m raftpb.Message) { q.EnqueueAnd(m, func() {}) }

// EnqueueAnd queues a message and calls tell, under the lock.
func (q *Queue) EnqueueAnd(m raftpb.Message, tell func()) {
	bytes, mu := MessageBytes(&m), q.guard()
	mu.Lock()
	defer mu.Unlock()
	if hs := HardStateOf(&m); !raft.IsEmptyHardState(hs) {
		q.newest = hs
	}
	if q.full {
		q.split(&m)
	}
	if !q.merge(&m) {
		q.queued = append(q.queued, m)
		q.bytes += bytes
		if m.Snapshot != nil {
			q.marks.Add(1)
		}
		q.Hold(bytes)
		q.owns = false
	}
	q.countWaiting()
	tell()
}

// countWaiting makes known how much is queued. The caller holds the lock.
func (q *Queue) countWaiting() { q.waiting.Store(int64(len(q.queued))) }

// Hold counts bytes that the queue, or the lane behind it, holds; less than 0 gives them back.
func (q *Queue) Hold(bytes int64) {
	q.held.Add(bytes)
	if q.Budget != nil {
		q.Budget.Hold(bytes)
	}
}

// Held returns the bytes that the queue, or the lane behind it, holds.
func (q *Queue) Held() int64 { return q.held.Load() }

// Empty reports whether nothing is queued. It takes no lock.
func (q *Queue) Empty() bool { return q.waiting.Load() == 0 }

// merge adds a message without entries to the last queued one, if that has none either, and reports whether
// it did. The two become one write. The later of two hard states, which is complete, is what both leave
// behind, and the answers of both may leave when it is durable. So the queue holds at most one message
// without entries between two with entries, which are bounded in bytes.
//
// A message with entries is left as it is. Adding a later commit index to its write would be just as sound,
// since a write is atomic; but the bound would then depend on that, and nothing would be gained.
func (q *Queue) merge(m *raftpb.Message) bool {
	if len(q.queued) == 0 {
		return false
	}
	last := &q.queued[len(q.queued)-1]
	if carries(m) || carries(last) {
		return false
	}
	if m.Term != 0 || m.Vote != 0 || m.Commit != 0 { // all three or none
		last.Term, last.Vote, last.Commit = m.Term, m.Vote, m.Commit
	}
	if !q.owns {
		last.Responses, q.owns = slices.Clone(last.Responses), true // the core owns the array
	}
	for i := range m.Responses {
		last.Responses = addResponse(last.Responses, &m.Responses[i])
	}
	return true
}

// carries reports whether a message has more to write than a hard state.
func carries(m *raftpb.Message) bool { return len(m.Entries) > 0 || m.Snapshot != nil }

// addResponse adds r to the answers of a merged message and removes the one that it replaces, so there are at
// most two of a kind for each member.
func addResponse(responses []raftpb.Message, r *raftpb.Message) []raftpb.Message {
	for i := range responses {
		if replaces(r, &responses[i]) {
			responses = slices.Delete(responses, i, i+1)
			break
		}
	}
	return append(responses, *r)
}

// replaces reports whether an answer makes an earlier one unnecessary: it says everything that the earlier
// one does, or is of the same kind. A peer must be able to do without the earlier one, since a network may
// lose it. The only answers without entries that a group gives itself are those to its own votes, and only
// the one of the latest term counts.
func replaces(next, prev *raftpb.Message) bool {
	if next.To != prev.To || next.Type != prev.Type {
		return false
	}
	switch next.Type {
	case raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp:
		return next.Reject == prev.Reject
	case raftpb.MsgAppResp:
		return outbox.Supersedes(next, prev) || next.From != next.To && next.Reject == prev.Reject
	}
	return outbox.Supersedes(next, prev)
}

// Dequeue returns what is queued, in order, at most maxBytes of it but at least one message. A message with a
// snapshot comes first, and after its state is installed. Until then nothing comes. installed is that
// snapshot; nil: there is none. The next take reuses the slice.
func (q *Queue) Dequeue(maxBytes int64, installed *raftpb.Snapshot) []raftpb.Message {
	clear(q.taken)
	mu := q.guard()
	mu.Lock()
	defer mu.Unlock()
	defer q.countWaiting()
	if q.bytes <= maxBytes && q.marks.Load() == 0 {
		q.taken, q.queued = q.queued, q.taken[:0]
		q.takenBytes, q.bytes = q.bytes, 0
		return q.taken
	}
	n, bytes := 1, MessageBytes(&q.queued[0])
	switch s := q.queued[0].Snapshot; {
	case s != installed && s != nil: // it came after the look at HeadSnapshot
		q.taken, q.takenBytes = q.taken[:0], 0
		return q.taken
	case s != nil:
		q.marks.Add(-1)
	}
	for n < len(q.queued) && q.queued[n].Snapshot == nil {
		more := MessageBytes(&q.queued[n])
		if bytes+more > maxBytes {
			break
		}
		n, bytes = n+1, bytes+more
	}
	q.taken = append(q.taken[:0], q.queued[:n]...)
	q.queued = slices.Delete(q.queued, 0, n)
	q.takenBytes, q.bytes = bytes, q.bytes-bytes
	return q.taken
}

// HeadSnapshot returns the snapshot that the next message carries, or nil. It takes no lock if no message
// that is queued carries one.
func (q *Queue) HeadSnapshot() *raftpb.Snapshot {
	if q.marks.Load() == 0 {
		return nil
	}
	mu := q.guard()
	mu.Lock()
	defer mu.Unlock()
	if q.marks.Load() == 0 {
		return nil
	}
	return q.queued[0].Snapshot
}

// Taken returns what was taken.
func (q *Queue) Taken() []raftpb.Message { return q.taken }

// TakenBytes returns the bytes of what was taken.
func (q *Queue) TakenBytes() int64 { return q.takenBytes }

// MoveTaken appends what was taken to messages, and returns its bytes, which stay held.
func (q *Queue) MoveTaken(messages []raftpb.Message) (all []raftpb.Message, bytes int64) {
	if bytes = q.takenBytes; len(messages) == 0 {
		messages, q.taken = q.taken, messages
	} else {
		messages = append(messages, q.taken...)
		clear(q.taken) // a message keeps an array of the core's alive
	}
	q.taken, q.takenBytes = q.taken[:0], 0
	return messages, bytes
}

// DropTaken drops what was taken.
func (q *Queue) DropTaken() {
	q.Hold(-q.takenBytes)
	clear(q.taken)
	q.taken, q.takenBytes = q.taken[:0], 0
}

// Rewrite replaces what is queued by the result of keep, which works in place. keep also returns how many
// bytes it frees; Hold gives them back.
func (q *Queue) Rewrite(keep func(queued []raftpb.Message) (kept []raftpb.Message, freed int64)) (freed int64) {
	mu := q.guard()
	mu.Lock()
	defer mu.Unlock()
	defer q.countWaiting()
	queued, freed := keep(q.queued)
	clear(q.queued[len(queued):])
	q.queued, q.bytes, q.owns = queued, q.bytes-freed, false
	return freed
}

// Waiting returns what is queued and not taken. It is for tests.
func (q *Queue) Waiting() []raftpb.Message {
	mu := q.guard()
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(q.queued)
}

// Arrays returns the memory of the queue, whole. It is for tests.
func (q *Queue) Arrays() [][]raftpb.Message {
	return [][]raftpb.Message{q.taken[:cap(q.taken)], q.queued[:cap(q.queued)]}
}

// HardStateOf returns the hard state that a message carries; zero: none.
func HardStateOf(m *raftpb.Message) raftpb.HardState {
	return raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
}

// Behind reports whether a hard state is of an earlier term than another one, or of the same term before its
// vote.
func Behind(hs, than raftpb.HardState) bool {
	return hs.Term < than.Term || hs.Term == than.Term && hs.Vote == raft.None && than.Vote != raft.None
}
