package millrace

import (
	"sync"

	"github.com/millrace/millrace/env"
	pb "github.com/millrace/millrace/raft/raftpb"
)

// queue is how work gets to a storage worker: the group puts, the worker takes all that has come together. It is not
// bounded by itself; the core bounds what it hands out (Config in package raft: MaxUncommittedEntriesSize,
// MaxCommittedSizePerReady), and a follower's leader what is in flight to it.
type queue struct {
	task env.Task // of the worker

	mu     sync.Mutex
	queued []pb.Message

	taken []pb.Message // the worker's, until it takes again
}

func (q *queue) put(m pb.Message) {
	q.mu.Lock()
	q.queued = append(q.queued, m)
	q.mu.Unlock()
	q.task.Wake()
}

// take returns everything that is queued, in order. The slice is used again at the next take.
func (q *queue) take() []pb.Message {
	clear(q.taken)
	q.mu.Lock()
	q.taken, q.queued = q.queued, q.taken[:0]
	q.mu.Unlock()
	return q.taken
}
