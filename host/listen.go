package host

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"syscall"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/transport/tcp"
)

// listen returns TCP to the members. listens says that the user has set Listen. listen calls event after
// Start only.
func (c Config) listen(listens bool, logger *slog.Logger, event func(tcp.TLSEvent)) (Transport, error) {
	t, err := tcp.Listen(tcp.Options{ID: c.ID, Listen: c.Listen, QueueBytes: c.queueBytes(), StallTimeout: c.stallTimeout(), Resolve: c.Resolve, TLS: c.transportTLS(event), Logger: logger})
	if err != nil {
		return nil, c.explainListen(listens, err)
	}
	if addr, is := c.exposed(); is && c.TLS == nil {
		logger.Warn("millrace: connections between hosts are neither encrypted nor authenticated, and an address is not on this machine: every program that reaches the port can read and forge everything; set Config.TLS", "host", c.ID, "addr", addr)
	}
	for id, addr := range c.Members {
		if id != c.ID {
			t.SetPeer(id, addr)
		}
	}
	return t, nil
}

// explainListen names the setting that an address is from, and what to set.
func (c Config) explainListen(listens bool, err error) error {
	var refused *net.OpError
	if !errors.As(err, &refused) || refused.Op != "listen" {
		return fmt.Errorf("millrace: %w", err)
	}
	where, change := fmt.Sprintf("Config.Listen is %s", c.Listen), "change Config.Listen"
	if !listens {
		where = fmt.Sprintf("Config.Listen is not set, so it listens on its address in Members, %s", c.Listen)
		change = "set Config.Listen"
	}
	_, port, _ := splitAddr(c.Listen) // Validate has split it
	switch wrong := (*net.DNSError)(nil); {
	case errors.As(err, &wrong), errors.Is(err, syscall.EADDRNOTAVAIL):
		change += fmt.Sprintf(", for instance to :%d, which is every address of this machine", port)
	case errors.Is(err, syscall.EADDRINUSE):
		change = "another program, or a host that still runs, has the address: stop it, or " + change
	case errors.Is(err, syscall.EACCES):
		change += " to a port that this user may have, starting at 1024"
	}
	return fmt.Errorf("millrace: host %d cannot listen: %s: %w; %s", c.ID, where, refused, change)
}

// tlsEvent passes on an event of the transport, and records a refusal for Explain. The transport reports a
// refusal at both ends; what it reports of a host that dials is what that host says of itself, so a stranger
// can name any member. It is a cause only while the member is not heard: then its certificate, or this
// host's, is the likely reason.
func (h *Host) tlsEvent(e tcp.TLSEvent) {
	h.reports.events.Emit(event.TLSEvent{TLSEvent: e})
	if refused, ok := e.(tcp.CertificateRefused); ok && h.network.handshakes.Of(refused.Peer) != nil {
		h.reports.watch.RecordCertificate(refused.Peer, examination.Certificate{ByPeer: refused.ByPeer, Remote: refused.Remote, Err: refused.Err}, h.clock.awakeAtBeat(), h.config.bounds().Refused())
	}
}
