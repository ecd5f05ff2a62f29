package outbox

import (
	"slices"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Batches sorts messages by destination, so the transport is called once for each host. It drops messages
// that a later one repeats. It belongs to one group's turn, or to one lane, and reuses its memory.
type Batches struct {
	To    Sender
	peers []perPeer
	// HoldEmpty makes it hold back appends without entries until one with entries replaces them, or until
	// FlushHeld is called (commitdelay.go). Only for one group.
	HoldEmpty bool
}

// Sender is the part of a transport that Batches need.
type Sender interface {
	Send(to uint64, batch []transport.Envelope) bool
}

type perPeer struct {
	to    uint64
	batch []transport.Envelope
	holds bool
	held  transport.Envelope // if holds
}

// Send passes messages of one group to the transport.
func (o *Batches) Send(group uint64, messages []raftpb.Message) {
	for i := range messages {
		o.Enqueue(group, &messages[i])
	}
	o.Flush()
}

// Flush passes what was put to the transport. Raft may lose any of it, so a refusal is not an error; the
// transport reports it as Unreachable.
func (o *Batches) Flush() {
	for i := range o.peers {
		if p := &o.peers[i]; len(p.batch) > 0 {
			o.To.Send(p.to, p.batch)
			clear(p.batch)
			p.batch = p.batch[:0]
		}
	}
}

// FlushHeld sends the messages that were held back.
func (o *Batches) FlushHeld() {
	for i := range o.peers {
		o.peers[i].release()
	}
	o.Flush()
}

// FlushHeldTo sends what was held back for one host.
func (o *Batches) FlushHeldTo(host uint64) {
	o.peer(host).release()
	o.Flush()
}

func (p *perPeer) release() {
	if p.holds {
		p.batch = append(p.batch, p.held)
		p.holds, p.held = false, transport.Envelope{}
	}
}

// Holding reports whether anything is held back.
func (o *Batches) Holding() bool {
	return slices.ContainsFunc(o.peers, func(p perPeer) bool { return p.holds })
}

// Shrink releases the batches of the peers for which nothing waits.
func (o *Batches) Shrink() {
	for i := range o.peers {
		if p := &o.peers[i]; len(p.batch) == 0 {
			p.batch = nil
		}
	}
}

// Enqueue adds a message of a group, or puts it in the place of those that it repeats.
func (o *Batches) Enqueue(group uint64, m *raftpb.Message) {
	p := o.peer(m.To)
	if o.HoldEmpty && m.Type == raftpb.MsgApp {
		if len(m.Entries) == 0 {
			p.holds, p.held = true, transport.Envelope{Group: group, Message: *m}
			return
		}
		// m repeats the held message, unless that belongs to another term; then the held one is stale and may
		// be lost.
		p.holds, p.held = false, transport.Envelope{}
	}
	// The last two are enough: a group's answers come in pairs.
	for j := len(p.batch) - 1; j >= max(0, len(p.batch)-2); j-- {
		if e := &p.batch[j]; e.Group == group && Supersedes(m, &e.Message) {
			e.Message = *m
			return
		}
	}
	p.batch = append(p.batch, transport.Envelope{Group: group, Message: *m})
}

// Append adds messages to those for a host, as they are.
func (o *Batches) Append(to uint64, batch []transport.Envelope) {
	p := o.peer(to)
	p.batch = append(p.batch, batch...)
}

func (o *Batches) peer(to uint64) *perPeer {
	for i := range o.peers {
		if o.peers[i].to == to {
			return &o.peers[i]
		}
	}
	o.peers = append(o.peers, perPeer{to: to})
	return &o.peers[len(o.peers)-1]
}

// Supersedes reports whether next, to the same destination, repeats everything in prev: it acknowledges more
// of the same log, or appends the same entries and more. (A leader that was paused answers many heartbeat
// responses in one turn. Each answer has the same append for a follower that it probes.)
func Supersedes(next, prev *raftpb.Message) bool {
	if next.Type != prev.Type || next.Term != prev.Term {
		return false
	}
	switch next.Type {
	case raftpb.MsgAppResp:
		return !next.Reject && !prev.Reject && next.Index >= prev.Index
	case raftpb.MsgApp:
		return next.Index == prev.Index && len(prev.Entries) > 0 && len(next.Entries) >= len(prev.Entries) && next.Commit >= prev.Commit
	case raftpb.MsgStorageAppendResp:
		// The core waits for the answer to each snapshot.
		return next.Index >= prev.Index && (prev.Snapshot == nil || prev.Snapshot == next.Snapshot)
	}
	return false
}
