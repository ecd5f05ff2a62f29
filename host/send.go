package host

import (
	"slices"
	"time"

	pb "github.com/millrace/millrace/raft/raftpb"
)

// mailbag sorts messages by destination, so that the transport is called once for each, and leaves out those that a later
// one says again. It belongs to one worker; what it holds is used again.
type mailbag struct {
	group uint64
	to    sender
	bags  []bag
	// patient makes it hold appends without entries back, until one with entries takes their place or flushHeld is
	// called. All they tell is the commit index, and under load the next append follows at once and tells it too: sent
	// each for itself they and their answers are most of the messages.
	patient bool
}

// patience is how long an append without entries is held back at most.
const patience = time.Millisecond

// sender is the part of a Transport that a mailbag needs.
type sender interface {
	Send(to, group uint64, messages []pb.Message) bool
}

type bag struct {
	to       uint64
	messages []pb.Message
	holds    bool
	held     pb.Message // if holds
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

// flushHeld sends what was held back.
func (b *mailbag) flushHeld() {
	for i := range b.bags {
		if bag := &b.bags[i]; bag.holds {
			bag.messages = append(bag.messages, bag.held)
			bag.holds, bag.held = false, pb.Message{}
		}
	}
	b.flush()
}

// holding reports whether anything is held back.
func (b *mailbag) holding() bool {
	return slices.ContainsFunc(b.bags, func(bag bag) bool { return bag.holds })
}

func (b *mailbag) put(m *pb.Message) {
	bag := b.bagFor(m.To)
	if b.patient && m.Type == pb.MsgApp {
		if len(m.Entries) == 0 {
			bag.holds, bag.held = true, *m
			return
		}
		// It says all that the held one does, unless that is of another term; then it is stale, and may be lost.
		bag.holds, bag.held = false, pb.Message{}
	}
	// The last two are enough: a worker's answers come in pairs.
	for j := len(bag.messages) - 1; j >= max(0, len(bag.messages)-2); j-- {
		if supersedes(m, &bag.messages[j]) {
			bag.messages[j] = *m
			return
		}
	}
	bag.messages = append(bag.messages, *m)
}

func (b *mailbag) bagFor(to uint64) *bag {
	for i := range b.bags {
		if b.bags[i].to == to {
			return &b.bags[i]
		}
	}
	b.bags = append(b.bags, bag{to: to})
	return &b.bags[len(b.bags)-1]
}

// supersedes reports whether next, to the same destination, says all that prev does: an acknowledgement of more of the
// same log.
func supersedes(next, prev *pb.Message) bool {
	if next.Type != prev.Type || next.Term != prev.Term {
		return false
	}
	switch next.Type {
	case pb.MsgAppResp:
		return !next.Reject && !prev.Reject && next.Index >= prev.Index
	case pb.MsgStorageAppendResp:
		// The core waits for the answer to each snapshot.
		return next.Index >= prev.Index && (prev.Snapshot == nil || prev.Snapshot == next.Snapshot)
	}
	return false
}
