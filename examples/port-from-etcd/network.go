package main

import pb "github.com/millrace/millrace/raft/raftpb"

// network brings messages from member to member, and loses those for a member that does not keep up.
type network struct{ inboxes map[uint64]chan pb.Message }

func newNetwork(ids ...uint64) *network {
	n := &network{inboxes: map[uint64]chan pb.Message{}}
	for _, id := range ids {
		n.inboxes[id] = make(chan pb.Message, 1024)
	}
	return n
}

func (n *network) send(messages []pb.Message) {
	for _, message := range messages {
		select {
		case n.inboxes[message.To] <- message:
		default:
		}
	}
}
