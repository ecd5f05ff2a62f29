package main

import (
	"sync"

	pb "github.com/millrace/millrace/raft/raftpb"
)

// network brings messages from member to member. It may lose them, and does so when a member does not keep
// up: Raft sends again what matters.
type network struct {
	mu      sync.Mutex
	inboxes map[uint64]chan pb.Message
}

func newNetwork() *network { return &network{inboxes: map[uint64]chan pb.Message{}} }

func (n *network) inbox(id uint64) chan pb.Message {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.inboxes[id] == nil {
		n.inboxes[id] = make(chan pb.Message, 1024)
	}
	return n.inboxes[id]
}

func (n *network) send(messages []pb.Message) {
	for _, message := range messages {
		select {
		case n.inbox(message.To) <- message:
		default:
		}
	}
}
