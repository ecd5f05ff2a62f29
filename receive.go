package millrace

import (
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"

	pb "github.com/millrace/millrace/raft/raftpb"
)

// Receive implements transport.Receiver: what a peer sent goes to the inbox of its group.
func (h *Host) Receive(from uint64, batch []transport.Envelope) {
	g := h.group
	messages := make([]pb.Message, 0, len(batch))
	var bytes int64
	for i := range batch {
		if m := &batch[i].Message; batch[i].Group == g.id && acceptable(m, from, g.self) {
			messages = append(messages, *m)
			bytes += int64(m.Size())
		} else {
			g.noteDropped(1, "message that is not for this group of this host")
		}
	}
	if n := g.inbox.putMessages(messages, bytes); n > 0 {
		g.noteDropped(n, "inbox full or closed")
	}
	g.task.Wake()
}

// acceptable checks that a message says the same of its way as the connection it came by, and is of a kind that travels.
func acceptable(m *pb.Message, from, self uint64) bool {
	return m.From == from && m.To == self && !raft.IsLocalMsg(m.Type)
}

func (g *Group) noteDropped(n int, why string) {
	before := g.dropped.Add(uint64(n)) - uint64(n)
	// Once for each power of two that is passed.
	if after := before + uint64(n); before == 0 || before^after > before {
		g.logger.Warn("messages dropped", "group", g.id, "node", g.self, "why", why, "dropped", after)
	}
}

// Unreachable implements transport.Receiver.
func (h *Host) Unreachable(peer uint64) {
	h.group.inbox.putUnreachable(peer)
	h.group.task.Wake()
}

// loopback is the way from a storage worker back to its own group.
type loopback struct{ g *Group }

func (l loopback) Send(_, _ uint64, messages []pb.Message) bool {
	l.g.inbox.putAnswers(messages)
	l.g.task.Wake()
	return true
}
