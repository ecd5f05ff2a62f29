package millrace

import pb "github.com/millrace/millrace/raft/raftpb"

// mailbag sorts messages by destination, so that the transport is called once for each, and leaves out those that a later
// one says again. It belongs to one worker; what it holds is used again.
type mailbag struct {
	group uint64
	to    sender
	bags  []bag
}

// sender is the part of a Transport that a mailbag needs.
type sender interface {
	Send(to, group uint64, messages []pb.Message) bool
}

type bag struct {
	to       uint64
	messages []pb.Message
}

// send hands messages to the transport.
func (b *mailbag) send(messages []pb.Message) {
	for i := range messages {
		b.put(&messages[i])
	}
	b.flush()
}

// flush hands over what was put. Raft may lose any of it, so a refusal is not an error; the transport reports it as
// Unreachable.
func (b *mailbag) flush() {
	for i := range b.bags {
		if bag := &b.bags[i]; len(bag.messages) > 0 {
			b.to.Send(bag.to, b.group, bag.messages)
			clear(bag.messages)
			bag.messages = bag.messages[:0]
		}
	}
}

func (b *mailbag) put(m *pb.Message) {
	for i := range b.bags {
		bag := &b.bags[i]
		if bag.to != m.To {
			continue
		}
		// The last two are enough: a worker's answers come in pairs.
		for j := len(bag.messages) - 1; j >= max(0, len(bag.messages)-2); j-- {
			if supersedes(m, &bag.messages[j]) {
				bag.messages[j] = *m
				return
			}
		}
		bag.messages = append(bag.messages, *m)
		return
	}
	b.bags = append(b.bags, bag{to: m.To, messages: []pb.Message{*m}})
}

// supersedes reports whether next, to the same destination, says all that prev does: an acknowledgement of more of the
// same log, or an append, where prev only carried the commit index to a follower that has no need of it alone.
func supersedes(next, prev *pb.Message) bool {
	if next.Type != prev.Type || next.Term != prev.Term {
		return false
	}
	switch next.Type {
	case pb.MsgAppResp:
		return !next.Reject && !prev.Reject && next.Index >= prev.Index
	case pb.MsgApp:
		return len(prev.Entries) == 0 && next.Commit >= prev.Commit && next.Index >= prev.Index
	case pb.MsgStorageAppendResp:
		return next.Index >= prev.Index
	}
	return false
}
