package tcp

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/cert"
)

// From a TCP connection to one that TLS protects, on both sides. A host that refuses a certificate, or that
// meets one that does not speak TLS, says why to the other end, so that the reason is in the logs of both:
// an alert of TLS is a number, and often the wrong one.

// certificateError is a refusal because of a certificate.
type certificateError struct {
	byPeer bool // the peer refuses this host
	err    error
}

func (e *certificateError) Error() string { return e.err.Error() }

// Unwrap returns the reason.
func (e *certificateError) Unwrap() error { return e.err }

// tellCertificate reports the event of err, if a certificate is the reason.
func (t *Transport) tellCertificate(peer uint64, remote string, err error) {
	var refused *certificateError
	if t.trust != nil && errors.As(err, &refused) {
		t.trust.event(CertificateRefused{Peer: peer, Remote: remote, ByPeer: refused.byPeer, Err: err})
	}
}

// securedLink is a connection that this host dialed, after the TLS handshake.
type securedLink struct {
	*tls.Conn
	channel *channel
}

// secure performs the TLS handshake of a dialing host, and checks that it has reached host to.
func (t *Transport) secure(l *link, to uint64) (*securedLink, error) {
	ch := &channel{Conn: l.conn, budget: maxHandshakeBytes}
	secured, proof, err := t.trust.handshake(ch, cert.Dialing)
	if err != nil {
		return nil, err
	}
	if err := t.trust.verify(proof, to); err != nil {
		err = fmt.Errorf("host %d has dialed %v as host %d: %w", t.o.ID, l.conn.RemoteAddr(), to, err)
		_, _ = secured.Write(appendRefusal(nil, t.versions, to, err.Error()))
		return nil, &certificateError{err: err}
	}
	l.proof = proof
	return &securedLink{Conn: secured, channel: ch}, nil
}

// secureInbound performs the TLS handshake of an accepting host. Which host it has accepted is checked when
// the hello is read (prove).
func (t *Transport) secureInbound(in *inbound) error {
	ch := &channel{Conn: in.conn, budget: maxHandshakeBytes}
	first, err := ch.peek()
	in.spoke = err == nil
	if err != nil {
		return err
	}
	if first == magic[0] {
		return t.refusePlain(ch)
	}
	secured, proof, err := t.trust.handshake(ch, cert.Accepting)
	if err != nil {
		return err
	}
	in.stream, in.channel, in.proof = secured, ch, proof
	return nil
}

// prove checks that an accepted host is the one that its hello names. A hello that was not read to its end
// names none, and judge refuses it.
func (t *Transport) prove(in *inbound, h *hello) error {
	if _, ok := t.versions.common(h.versions); !ok || h.class >= transport.Classes || in.proof == nil {
		return nil
	}
	if err := t.trust.verify(in.proof, h.from.ID); err != nil {
		return &certificateError{err: fmt.Errorf("host %d, which %v says that it is, is refused by host %d: %w", h.from.ID, in.conn.RemoteAddr(), t.o.ID, err)}
	}
	in.proof.id, h.from.Key, h.from.Channel = h.from.ID, in.proof.key(), in.proof.channel
	return nil
}

// provenID returns the id that the other end has proved, before it has said any, or 0.
func (t *Transport) provenID(in *inbound) uint64 {
	if in.proof == nil {
		return 0
	}
	id, err := cert.MemberID(in.proof.chain[0])
	if err != nil || t.trust.verify(in.proof, id) != nil {
		return 0
	}
	return id
}

// welcomed ends what is special about a stranger's connection. A record that has begun may take stall.
func (in *inbound) welcomed(stall time.Duration) {
	if in.channel != nil {
		in.channel.known, in.channel.writing, in.channel.stall = true, refuse, stall
	}
}

// refusePlain answers a host that does not speak TLS, in the protocol without TLS.
func (t *Transport) refusePlain(ch *channel) error {
	h, err := readHello(ch, t.versions)
	if err != nil {
		return err
	}
	err = fmt.Errorf("host %d speaks plain TCP, and host %d TLS; configure TLS on both, or on none", h.from.ID, t.o.ID)
	_, _ = ch.Conn.Write(verdict{code: refused, why: err.Error()}.append(nil))
	return err
}

// refuseTLS answers a host that speaks TLS, if this one does not. Its TLS library sees the first bytes.
func (t *Transport) refuseTLS(conn net.Conn) {
	_, _ = conn.Write(verdict{code: refused, why: errSpeaksTLS.Error()}.append(nil))
	// Closing a connection with unread bytes resets it, and the reset may overtake the answer.
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(conn, maxHandshakeBytes))
	}
}

// mayHandshake reports whether a stranger may begin a TLS handshake, and closes its connection if not.
func (t *Transport) mayHandshake(conn net.Conn) bool {
	if t.trust == nil || t.limit.allow(hostOf(conn.RemoteAddr()), time.Now()) {
		return true
	}
	t.trust.count.limited.Add(1)
	t.log.warn(0, "closed a connection, because there are too many TLS handshakes from its address", "remote", conn.RemoteAddr())
	conn.Close()
	return false
}
