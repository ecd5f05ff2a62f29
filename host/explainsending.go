package host

import (
	"github.com/millrace/millrace/host/internal/outbox"
	"github.com/millrace/millrace/transport"
)

// A follower may be behind because this host drops what it sends to it: the queue of the transport is full.
// Then the disk of the follower is well, and an operator must not be sent to it.

// watchedSender is the transport, as far as messages of groups go. It notes what the transport refuses.
type watchedSender struct {
	to   outbox.Sender
	host *Host
}

// Send implements outbox.Sender.
func (s watchedSender) Send(to uint64, batch []transport.Envelope) bool {
	sent := s.to.Send(to, batch)
	if !sent {
		s.host.noteUnsent(to)
	}
	return sent
}

func (h *Host) noteUnsent(to uint64) {
	if p := h.network.handshakes.of(to); p != nil {
		p.unsent.note(1, h.clock.livedAtBeat(), int64(2*h.config.electionTicks()))
	}
}
