package host

import (
	"fmt"

	"github.com/millrace/millrace/host/diagnosis"
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

// cannotSendTo finds a follower that is behind while messages to it are dropped here, again and again.
func (e *examination) cannotSendTo(v *memberView) bool {
	p := e.host.network.handshakes.of(v.id)
	if p == nil {
		return false
	}
	since, latest, n := p.unsent.load()
	if n < 2 || e.now-latest > e.waitBound() || !v.slow && v.at-v.ackedAt <= e.waitBound() {
		return false
	}
	e.found(diagnosis.CodeNotSent, v.id, since,
		fmt.Sprintf("look at the network to host %d, which takes less than this host sends; if there is memory, raise Config.MemoryBytes of this host", v.id),
		"%d times in %v, the latest %v ago, this host has dropped messages to host %d: its queue to that host has no space (at most %d bytes, of Config.MemoryBytes, %d); host %d is %d entries behind, and the next one that it needs is entry %d",
		n, diagnosis.Rounded(e.duration(latest-since)), diagnosis.Rounded(e.duration(e.now-latest)), v.id, e.host.config.queueBytes(), e.host.config.MemoryBytes, v.id, v.behind, v.match+1)
	return true
}
