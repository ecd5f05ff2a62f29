package tcp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/transport/cert"
)

// TLS makes a transport encrypt its connections, and makes both ends of each prove which member they are.
// It is TLS 1.3 with certificates on both sides (package cert). After that a connection is as in plain TCP.
// The hello must name the id of the certificate, and the certificate of the accepting host must name the
// dialed id.
//
// Nothing about a connection is remembered for the next one: there are no session tickets, so each connection
// is checked with the CAs of its time. What a host would not accept any more, because a certificate has
// expired or because its CA was removed, ends within ReloadEvery (trust.go).
type TLS struct {
	// Credentials returns what this host presents and which CAs it trusts. Listen calls it, and then one
	// goroutine does, every ReloadEvery; it may read files. If it fails, or if what it returns is not valid
	// for this host, the transport keeps what it has, and says so. It must return another value when
	// something has changed.
	Credentials func() (*cert.Credentials, error)
	// Now is the time with which certificates are compared [time.Now].
	Now func() time.Time
	// ReloadEvery is the time between two calls of Credentials, and between two looks at what the open
	// connections rest on [5 s].
	ReloadEvery time.Duration
	// Events is called with each TLSEvent, from goroutines of the transport. It must not block [none].
	Events func(TLSEvent)
}

func (o *TLS) withDefaults() (*TLS, error) {
	if o.Credentials == nil {
		return nil, errors.New("tcp: Options.TLS has no Credentials; say where the certificate comes from, or leave TLS out")
	}
	if o.ReloadEvery < 0 {
		return nil, fmt.Errorf("tcp: Options.TLS.ReloadEvery is %v, want 0 (the default) or more", o.ReloadEvery)
	}
	d := *o
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.ReloadEvery == 0 {
		d.ReloadEvery = 5 * time.Second
	}
	if d.Events == nil {
		d.Events = func(TLSEvent) {}
	}
	return &d, nil
}

// TLSEvent is something about the certificates of a host or of its peers: CertificateRefused,
// CertificateExpires, CredentialsLoaded or CredentialsRefused. It is reported just before it is logged.
type TLSEvent interface{ isTLSEvent() }

// CertificateRefused reports that a connection was not made, or was ended, because of a certificate. It is
// reported at growing distances for each peer: at once, and if it goes on after 1 s, 10 s, 1 min and each
// 10 min.
type CertificateRefused struct {
	Peer   uint64 // its claim, without proof; 0: a host that is not in the address book
	Remote string // its address
	ByPeer bool   // the peer refuses the certificate of this host
	Err    error  // what is wrong, and what to do
}

// CertificateExpires reports a week before it happens, and then once a day, that a certificate of this host
// or a CA that it trusts expires, or has expired.
type CertificateExpires struct {
	Certificate string // subject and fingerprint
	From        string // the file
	IsCA        bool
	NotAfter    time.Time
}

// CredentialsLoaded reports that the host has changed its certificate, or the CAs that it trusts.
type CredentialsLoaded struct {
	Certificate string // subject and fingerprint
	NotAfter    time.Time
	CAs         int
}

// CredentialsRefused reports that new credentials cannot be used, and that the host keeps what it had. It is
// reported once for each reason, and again after an hour. It is not reported while files cannot be opened for
// lack of descriptors or memory. They are opened again at the next look, and only the log says so.
type CredentialsRefused struct{ Err error }

func (CertificateRefused) isTLSEvent() {}
func (CertificateExpires) isTLSEvent() {}
func (CredentialsLoaded) isTLSEvent()  {}
func (CredentialsRefused) isTLSEvent() {}

// protocol is what both ends must name in the handshake (ALPN), so that a connection to a port of another
// service, which happens to trust the same CA, never counts as one between hosts.
const protocol = "millrace"

// maxHandshakeBytes bounds what a stranger can make this host read, and so hold, before it is known: its
// part of the TLS handshake, and its hello. crypto/tls alone would take certificates of 256 KiB.
const maxHandshakeBytes = 48 << 10

// config returns the configuration of both sides. Certificates are checked after the handshake (verify),
// because only then this host can tell the other one in words why it is refused; and not by crypto/tls,
// because it compares host names.
func (t *trust) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		MaxVersion: tls.VersionTLS13,
		NextProtos: []string{protocol},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &t.current.Load().Certificate, nil
		},
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &t.current.Load().Certificate, nil
		},
		ClientAuth:                  tls.RequireAnyClientCert,
		InsecureSkipVerify:          true, // verify does it
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
}

// proof is what the other end of a connection has proved: that it has the key of a certificate.
type proof struct {
	chain   []*x509.Certificate
	role    cert.Role // of the other end
	id      uint64    // that it has proved
	channel [32]byte  // what only the two ends of this connection know
}

// channelLabel is the label of RFC 9266, "tls-exporter".
const channelLabel = "EXPORTER-Channel-Binding"

// verify decides whether the proof is one of member id. It is called after the handshake, which has shown
// that the other end has the key.
func (t *trust) verify(p *proof, id uint64) error {
	now, err := t.now()
	if err != nil {
		return err
	}
	return cert.Verify(p.chain, t.current.Load().Roots, id, p.role, now)
}

func (p *proof) key() [32]byte { return cert.KeyHash(p.chain[0]) }

// handshake performs the TLS handshake on conn, whose deadline is set. What it returns has proved that it has
// the key of its certificate, and no more.
func (t *trust) handshake(conn *channel, role cert.Role) (*tls.Conn, *proof, error) {
	side, other := tls.Client, cert.Accepting
	if role == cert.Accepting {
		side, other = tls.Server, cert.Dialing
	}
	secured := side(conn, t.shared)
	if err := secured.Handshake(); err != nil {
		t.count.failures.Add(1)
		return nil, nil, fmt.Errorf("the TLS handshake failed: %w", explainHandshake(err))
	}
	state := secured.ConnectionState()
	if state.NegotiatedProtocol != protocol {
		t.count.failures.Add(1)
		return nil, nil, fmt.Errorf("the TLS handshake failed: the other end does not name the protocol %q, so it is no host of Millrace", protocol)
	}
	channel, err := state.ExportKeyingMaterial(channelLabel, nil, 32)
	if err != nil {
		t.count.failures.Add(1)
		return nil, nil, fmt.Errorf("the TLS handshake failed: %w", err)
	}
	t.count.handshakes.Add(1)
	return secured, &proof{chain: state.PeerCertificates, role: other, channel: [32]byte(channel)}, nil
}

// explainHandshake says what the usual mistakes look like.
func explainHandshake(err error) error {
	var header tls.RecordHeaderError
	switch {
	case errors.As(err, &header) && string(header.RecordHeader[:]) == magic[:len(header.RecordHeader)]:
		return errors.New("the other host speaks plain TCP, and this one TLS; configure TLS on both, or on none")
	case errors.Is(err, errHandshakeBytes), errors.Is(err, net.ErrClosed):
		return err
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the other end closed the connection: %w", err)
	}
	return err
}

// tlsCounters are the counts of TLSStats.
type tlsCounters struct {
	handshakes, failures, limited atomic.Uint64
	loads, loadFailures           atomic.Uint64
}
