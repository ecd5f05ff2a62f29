package host

import (
	"fmt"

	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/transport/tcp"
)

// What Explain says of certificates. The transport reports a refusal at both ends; what it reports of a host
// that dials is what that host says of itself, so a stranger can name any member. It is a cause only while
// the member is not heard: then its certificate, or this host's, is the likely reason.

// tlsEvent passes on an event of the transport, and notes a refusal for Explain.
func (h *Host) tlsEvent(e tcp.TLSEvent) {
	h.reports.events.emit(event.TLSEvent{TLSEvent: e})
	if refused, ok := e.(tcp.CertificateRefused); ok && h.network.handshakes.of(refused.Peer) != nil {
		h.reports.watch.noteCertificate(refused, h.clock.livedAtBeat(), h.config.refusedTicks())
	}
}

// noteCertificate notes that a certificate was refused.
func (w *hostWatch) noteCertificate(r tcp.CertificateRefused, now, recent int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.certificates == nil {
		w.certificates = map[uint64]refusedCertificate{}
	}
	c, known := w.certificates[r.Peer]
	if !known || now-c.latest > recent {
		c.since = now
	}
	c.latest, c.what = now, r
	w.certificates[r.Peer] = c
}

// refusedCertificate is a certificate because of which two hosts do not speak.
type refusedCertificate struct {
	what          tcp.CertificateRefused
	since, latest int64
}

// certificate returns because of which certificate a host was not connected lately.
func (w *hostWatch) certificate(id uint64, now, recent int64) (c refusedCertificate, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c, ok = w.certificates[id]
	return c, ok && now-c.latest <= recent
}

// lookForCertificates finds members with which this host does not speak because of a certificate.
func (e *examination) lookForCertificates() {
	for _, id := range e.memberIDs() {
		c, ok := e.host.reports.watch.certificate(id, e.now, e.host.config.refusedTicks())
		if silent, _ := e.silence(id, 0); !ok || silent <= e.unheardBound() {
			continue
		}
		if c.what.ByPeer {
			e.found(diagnosis.CodeCertificateRefused, id, c.since,
				fmt.Sprintf("renew the certificate of this host, or make host %d trust its CA; no restart is needed", id),
				"host %d refuses the certificate of this host: %v", id, c.what.Err)
			continue
		}
		e.found(diagnosis.CodeCertificateRefused, id, c.since,
			fmt.Sprintf("renew the certificate of host %d, or make this host trust its CA; no restart is needed", id),
			"this host refuses a certificate of host %d, which speaks from %s: %v", id, c.what.Remote, c.what.Err)
	}
}
