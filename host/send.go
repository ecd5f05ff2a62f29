package host

import (
	"slices"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// outgoing sorts messages by destination, so that the transport is called once for each, and leaves out those that a later
// one says again. It belongs to one worker; what it holds is used again.
type outgoing struct {
	group uint64
	to    sender
	peers []perPeer
	// holdEmpty makes it hold appends without entries back, until one with entries takes their place or flushHeld is
	// called. All they tell is the commit index, and under load the next append follows at once and tells it too: sent
	// each for itself they and their answers are most of the messages.
	holdEmpty bool
}

// maxHold is how long an append without entries is held back at most.
const maxHold = time.Millisecond

// sender is the part of a Transport that a outgoing needs.
type sender interface {
	Send(to, group uint64, messages []raftpb.Message) bool
}

type perPeer struct {
	to       uint64
	messages []raftpb.Message
	holds    bool
	held     raftpb.Message // if holds
}

// send hands messages to the transport.
func (o *outgoing) send(messages []raftpb.Message) {
	for i := range messages {
		o.put(&messages[i])
	}
	o.flush()
}

// flush hands over what was put. Raft may lose any of it, so a refusal is not an error; the transport reports it as
// Unreachable.
func (o *outgoing) flush() {
	for i := range o.peers {
		if p := &o.peers[i]; len(p.messages) > 0 {
			o.to.Send(p.to, o.group, p.messages)
			clear(p.messages)
			p.messages = p.messages[:0]
		}
	}
}

// flushHeld sends what was held back.
func (o *outgoing) flushHeld() {
	for i := range o.peers {
		if p := &o.peers[i]; p.holds {
			p.messages = append(p.messages, p.held)
			p.holds, p.held = false, raftpb.Message{}
		}
	}
	o.flush()
}

// holding reports whether anything is held back.
func (o *outgoing) holding() bool {
	return slices.ContainsFunc(o.peers, func(p perPeer) bool { return p.holds })
}

func (o *outgoing) put(m *raftpb.Message) {
	p := o.peer(m.To)
	if o.holdEmpty && m.Type == raftpb.MsgApp {
		if len(m.Entries) == 0 {
			p.holds, p.held = true, *m
			return
		}
		// It says all that the held one does, unless that is of another term; then it is stale, and may be lost.
		p.holds, p.held = false, raftpb.Message{}
	}
	// The last two are enough: a worker's answers come in pairs.
	for j := len(p.messages) - 1; j >= max(0, len(p.messages)-2); j-- {
		if supersedes(m, &p.messages[j]) {
			p.messages[j] = *m
			return
		}
	}
	p.messages = append(p.messages, *m)
}

func (o *outgoing) peer(to uint64) *perPeer {
	for i := range o.peers {
		if o.peers[i].to == to {
			return &o.peers[i]
		}
	}
	o.peers = append(o.peers, perPeer{to: to})
	return &o.peers[len(o.peers)-1]
}

// supersedes reports whether next, to the same destination, says all that prev does: an acknowledgement of more of the
// same log.
func supersedes(next, prev *raftpb.Message) bool {
	if next.Type != prev.Type || next.Term != prev.Term {
		return false
	}
	switch next.Type {
	case raftpb.MsgAppResp:
		return !next.Reject && !prev.Reject && next.Index >= prev.Index
	case raftpb.MsgStorageAppendResp:
		// The core waits for the answer to each snapshot.
		return next.Index >= prev.Index && (prev.Snapshot == nil || prev.Snapshot == next.Snapshot)
	}
	return false
}
