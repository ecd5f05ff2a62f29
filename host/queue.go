package host

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/internal/outbox"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// queue passes work of one group to a lane: the group puts, and the lane takes what has accumulated, up to a
// round.
//
// Other parts bound how much can wait, in bytes that include what an entry takes besides its data: the core
// on a leader (raft.Config.MaxUncommittedEntriesSize) and for what is applied (MaxCommittedSizePerReady), and
// the host for what peers send (inbound.Receive). Those bounds do not cover messages without entries, and a
// peer can cause any number of them while a disk hangs. So they are merged (merge).
type queue struct {
	budget *budget.Budget // of all groups; nil: none
	held   atomic.Int64   // bytes that are queued, taken or in a round

	mu     sync.Mutex
	queued []raftpb.Message
	bytes  int64 // of queued
	owns   bool  // the last queued message was merged: its Responses belong to the queue
	marks  int   // queued messages that carry a snapshot
	overtaking

	taken      []raftpb.Message // the lane's, until it takes again
	takenBytes int64
}

// maxRoundBytes bounds what a lane takes at once, and so one piece of its work. A message is never split,
// because its write is atomic; a larger one is taken alone.
const maxRoundBytes = 8 << 20

// messageBytes is about how much memory a message takes, without its responses.
func messageBytes(m *raftpb.Message) int64 {
	n := int64(overheadBytes + len(m.Entries)*raft.EntryOverhead + len(m.Context))
	for i := range m.Entries {
		n += int64(len(m.Entries[i].Data))
	}
	if m.Snapshot != nil {
		n += int64(len(m.Snapshot.Data))
	}
	return n
}

// put queues a message. The caller tells the lane after it.
func (q *queue) put(m raftpb.Message) {
	bytes := messageBytes(&m)
	q.mu.Lock()
	if hs := hardStateOf(&m); !raft.IsEmptyHardState(hs) {
		q.newest = hs
	}
	if q.full {
		q.split(&m)
	}
	if !q.merge(&m) {
		q.queued = append(q.queued, m)
		q.bytes += bytes
		if m.Snapshot != nil {
			q.marks++
		}
		q.hold(bytes)
		q.owns = false
	}
	q.mu.Unlock()
}

// hold counts bytes that the queue, or the lane behind it, holds; less than 0 gives them back.
func (q *queue) hold(bytes int64) {
	q.held.Add(bytes)
	if q.budget != nil {
		q.budget.Hold(bytes)
	}
}

// empty reports whether nothing is queued.
func (q *queue) empty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.queued) == 0
}

// merge adds a message without entries to the last queued one, if that has none either, and reports whether
// it did. The two become one write. The later of two hard states, which is complete, is what both leave
// behind, and the answers of both may leave when it is durable. So the queue holds at most one message
// without entries between two with entries, which are bounded in bytes.
//
// A message with entries is left as it is. Adding a later commit index to its write would be just as sound,
// since a write is atomic; but the bound would then depend on that, and nothing would be gained.
func (q *queue) merge(m *raftpb.Message) bool {
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

// take returns what is queued, in order, at most maxBytes of it but at least one message. A message that
// carries a snapshot comes first or not yet (install.go). The next take reuses the slice.
func (q *queue) take(maxBytes int64) []raftpb.Message {
	clear(q.taken)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.bytes <= maxBytes && q.marks == 0 {
		q.taken, q.queued = q.queued, q.taken[:0]
		q.takenBytes, q.bytes = q.bytes, 0
		return q.taken
	}
	n, bytes := 1, messageBytes(&q.queued[0])
	if q.queued[0].Snapshot != nil {
		q.marks--
	}
	for n < len(q.queued) && q.queued[n].Snapshot == nil {
		more := messageBytes(&q.queued[n])
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

// headSnapshot returns the snapshot that the next message carries, or nil.
func (q *queue) headSnapshot() *raftpb.Snapshot {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.marks == 0 {
		return nil
	}
	return q.queued[0].Snapshot
}
