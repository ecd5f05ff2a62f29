package host

import (
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/transport/tcp"
)

// What Explain knows of certificates. The transport reports a refusal at both ends; what it reports of a host
// that dials is what that host says of itself, so a stranger can name any member. It is a cause only while
// the member is not heard: then its certificate, or this host's, is the likely reason.

// tlsEvent passes on an event of the transport, and notes a refusal for Explain.
func (h *Host) tlsEvent(e tcp.TLSEvent) {
	h.reports.events.emit(event.TLSEvent{TLSEvent: e})
	if refused, ok := e.(tcp.CertificateRefused); ok && h.network.handshakes.of(refused.Peer) != nil {
		h.reports.watch.noteCertificate(refused, h.clock.livedAtBeat(), h.config.bounds().Refused())
	}
}

// noteCertificate notes that a certificate was refused.
func (w *hostWatch) noteCertificate(r tcp.CertificateRefused, now, recent int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.certificates == nil {
		w.certificates = map[uint64]examination.Certificate{}
	}
	c, known := w.certificates[r.Peer]
	if !known || now-c.Latest > recent {
		c.Since = now
	}
	c.ByPeer, c.Remote, c.Err, c.Latest = r.ByPeer, r.Remote, r.Err, now
	w.certificates[r.Peer] = c
}

// certificate returns because of which certificate a host was not connected last; nil: there was none.
func (w *hostWatch) certificate(id uint64) *examination.Certificate {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c, was := w.certificates[id]; was {
		return &c
	}
	return nil
}
