package main

import (
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"
)

// queue holds the messages that wait for a storage worker, which takes all of them at once.
type queue struct {
	mu      sync.Mutex
	waiting []*pb.Message
	wake    chan struct{}
}

func newQueue() *queue { return &queue{wake: make(chan struct{}, 1)} }

func (q *queue) push(m *pb.Message) {
	q.mu.Lock()
	q.waiting = append(q.waiting, m)
	q.mu.Unlock()
	notify(q.wake)
}

// work calls do with all that waits, again and again, until quit is closed.
func (q *queue) work(quit <-chan struct{}, do func([]*pb.Message) error) error {
	for {
		select {
		case <-q.wake:
		case <-quit:
			return nil
		}
		q.mu.Lock()
		waiting := q.waiting
		q.waiting = nil
		q.mu.Unlock()
		if len(waiting) == 0 {
			continue
		}
		if err := do(waiting); err != nil {
			return err
		}
	}
}
