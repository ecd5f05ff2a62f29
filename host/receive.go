package host

import (
	"fmt"

	"github.com/millrace/millrace/transport"

	"github.com/millrace/millrace/raft/raftpb"
)

// inbound is the host as its transport sees it: transport.Receiver. It is a type of its own so that a user's
// Host does not export what only the transport may call.
type inbound Host

var _ transport.Receiver = (*inbound)(nil)

// Receive implements transport.Receiver: what a peer sent goes to the inbox of its group.
func (h *inbound) Receive(from uint64, batch []transport.Envelope) {
	g := h.group
	messages := make([]raftpb.Message, 0, len(batch))
	var bytes int64
	for i := range batch {
		if why := g.rejectEnvelope(&batch[i], from); why != "" {
			g.noteDropped(1, why)
			continue
		}
		messages = append(messages, batch[i].Message)
		bytes += messageBytes(&batch[i].Message)
	}
	if n := g.inbox.putMessages(messages, bytes); n > 0 {
		g.noteDropped(n, "inbox full or closed")
	}
	g.task.Wake()
}

// Deliver implements transport.Receiver. A host has no use for pulses, control and bulk yet.
func (h *inbound) Deliver(_ uint64, kind transport.Kind, _ []byte) {
	h.group.noteDropped(1, fmt.Sprintf("frame of kind %v, which this host does not know", kind))
}

// rejectEnvelope says why a message is refused; "" means that it is accepted. A message must name the same
// sender and receiver as its connection, be of a type that travels, and contain nothing that the log would
// refuse: an invalid write to the log counts as our own bug and stops the group.
func (g *Group) rejectEnvelope(e *transport.Envelope, from uint64) (why string) {
	m := &e.Message
	switch {
	case e.Group != g.id || m.To != g.self:
		return "message that is not for this group of this host"
	case m.From != from:
		return "message that names another host as its sender"
	case !mayTravel(m.Type):
		return fmt.Sprintf("message of type %v, which hosts do not send to each other", m.Type)
	}
	if len(m.Responses) > 0 {
		return "message with responses, which are only for local workers, and which no bound counts"
	}
	if len(m.Entries) > 0 && g.append.held.Load() > g.inbox.maxMessageBytes {
		return "entries that arrive faster than this host's disk writes them"
	}
	for i := range m.Entries {
		if t := m.Entries[i].Type; t < raftpb.EntryNormal || t > raftpb.EntryConfChangeV2 {
			return "entry of an unknown type"
		}
	}
	return ""
}

// mayTravel lists the types of messages that hosts send. The core would take more: forwarded commands and
// reads, snapshots, requests to transfer the leadership. Hosts do not send these yet, and each of them would
// let a peer cause work or stop proposals.
func mayTravel(t raftpb.MessageType) bool {
	switch t {
	case raftpb.MsgApp, raftpb.MsgAppResp, raftpb.MsgHeartbeat, raftpb.MsgHeartbeatResp,
		raftpb.MsgVote, raftpb.MsgVoteResp, raftpb.MsgPreVote, raftpb.MsgPreVoteResp:
		return true
	}
	return false
}

func (g *Group) noteDropped(n int, why string) {
	before := g.dropped.Add(uint64(n)) - uint64(n)
	// Once for each power of two that is passed.
	if after := before + uint64(n); before == 0 || before^after > before {
		g.logger.Warn("messages dropped", "group", g.id, "host", g.self, "why", why, "dropped", after)
	}
}

// Unreachable implements transport.Receiver.
func (h *inbound) Unreachable(peer uint64) {
	h.group.inbox.putUnreachable(peer)
	h.group.task.Wake()
}
