package tcp

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/internal/repetition"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/cert"
	"github.com/millrace/millrace/vfs"
)

// trust is what this host presents and trusts now. One goroutine (keepTrust) loads it again, ends connections
// that rest on what is not trusted any more, and warns of certificates that expire. Handshakes never wait for
// a file: they use what was loaded last.
//
// A connection is looked at with the same function and the same clock as a handshake. So there is one rule:
// what would be refused now does not stay. It needs no list of revoked certificates, and no age at which
// connections are dialed again.
type trust struct {
	o       TLS
	id      uint64
	logger  *slog.Logger
	current atomic.Pointer[cert.Credentials] // what is presented and trusted
	wanted  atomic.Pointer[cert.Credentials] // what was loaded last: its CAs are trusted, and its certificate presented when it may be
	shared  *tls.Config
	count   tlsCounters

	// Owned by keepTrust.
	refusal struct { // of credentials
		why string
		at  time.Time
	}
	lack struct { // of descriptors or memory
		looks time.Duration // that were without, in a row; each counts as a second of the gate
		gate  repetition.Gate
	}
	warned map[string]time.Time // fingerprint: when it was warned of last

	timeless atomic.Bool // the latest call of Now did not return
}

// newTrust loads the credentials for the first time. They must be valid.
func newTrust(o *TLS, id uint64, logger *slog.Logger) (*trust, error) {
	d, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	first, err := d.read()
	if err != nil {
		return nil, fmt.Errorf("tcp: host %d: TLS: %w", id, err)
	}
	t := &trust{o: *d, id: id, logger: logger, warned: map[string]time.Time{}}
	if err := t.validate(first); err != nil {
		return nil, fmt.Errorf("tcp: host %d: TLS: %w", id, err)
	}
	t.current.Store(first)
	t.wanted.Store(first)
	t.shared = t.config()
	return t, nil
}

// read returns the credentials of the source.
func (o *TLS) read() (c *cert.Credentials, err error) {
	err = callUser("Credentials of TLS", func() (err error) {
		c, err = o.Credentials()
		return err
	})
	if err == nil && c == nil {
		err = errors.New("the source has returned no credentials")
	}
	return c, err
}

// validate says why credentials cannot be those of this host now, or returns nil.
func (t *trust) validate(c *cert.Credentials) error {
	now, err := t.now()
	if err != nil {
		return err
	}
	return c.Validate(t.id, now)
}

// keepTrust keeps trust up to date until ctx is done. Listen has just loaded it.
func (t *Transport) keepTrust(ctx context.Context) {
	again := time.NewTicker(t.trust.o.ReloadEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			t.reviewTrust()
		}
	}
}

// reviewTrust is one round of keepTrust.
func (t *Transport) reviewTrust() {
	t.trust.load()
	t.trust.present(func(key [32]byte) bool { return transport.MayPresent(t.receiver, key) })
	t.trust.warn()
	t.endDistrusted()
}

// load takes new credentials, if there are some and they are valid.
func (t *trust) load() {
	before := t.wanted.Load()
	next, err := t.o.read()
	if vfs.IsShort(err) {
		t.lacks(err)
		return
	}
	t.lack.looks = 0
	t.lack.gate.End()
	if err == nil && next.Equal(before) {
		t.refusal.why = ""
		return
	}
	if err == nil {
		err = t.validate(next)
	}
	if err != nil {
		t.count.loadFailures.Add(1)
		now, _ := t.now() // zero if that function does not work: then it is told once
		if why, _, _ := strings.Cut(err.Error(), "\n"); why != t.refusal.why || now.Sub(t.refusal.at) >= time.Hour {
			t.refusal.why, t.refusal.at = why, now
			t.event(CredentialsRefused{Err: err})
			t.logger.Warn("new certificates cannot be used; the host keeps the ones that it has", "error", err)
		}
		return
	}
	t.refusal.why = ""
	t.wanted.Store(next)
	t.count.loads.Add(1)
	chain, _ := next.Chain()
	loaded := CredentialsLoaded{Certificate: cert.Text(chain[0]), NotAfter: chain[0].NotAfter, CAs: len(next.Roots)}
	t.event(loaded)
	t.logger.Info("certificates were loaded", "certificate", loaded.Certificate, "not_after", loaded.NotAfter, "cas", loaded.CAs)
}

// lacks says that the credentials cannot be opened for lack of descriptors or memory. So nothing is known of
// them, and nothing is refused: the next look tries again. The lines come at growing numbers of looks, since
// the time between two looks may be longer than what the gate takes for the end of its topic.
func (t *trust) lacks(err error) {
	t.lack.looks++
	if repeats, ok := t.lack.gate.Admit(t.lack.looks * time.Second); ok {
		t.logger.Warn("certificates cannot be opened for now; the host keeps the ones that it has, and looks again", "error", err, "repeats", repeats)
	}
}

// present makes what was loaded last what is presented, if the other hosts know its key, or if there is
// nothing to lose.
func (t *trust) present(may func(key [32]byte) bool) {
	wanted, now := t.wanted.Load(), t.current.Load()
	if wanted == now {
		return
	}
	old := &cert.Credentials{Certificate: now.Certificate, CertFrom: now.CertFrom, Roots: wanted.Roots, CAFrom: wanted.CAFrom}
	switch key := wanted.Key(); {
	case key == now.Key(), may(key), t.validate(old) != nil:
		t.current.Store(wanted)
	case !old.Equal(now):
		t.current.Store(old)
	}
}

// Key implements what package host asks for. It returns the hash of the key that this host presents, and of
// the key that it would present if the others knew it. They are zero without TLS.
func (t *Transport) Key() (presented, wanted [32]byte) {
	if t.trust == nil {
		return presented, wanted
	}
	return t.trust.current.Load().Key(), t.trust.wanted.Load().Key()
}

const (
	warnBefore = 7 * 24 * time.Hour
	warnEvery  = 24 * time.Hour
)

// warn says which certificates expire soon.
func (t *trust) warn() {
	now, err := t.now()
	if err != nil {
		return // now has said it
	}
	next := map[string]time.Time{} // so that it holds only certificates that are in use
	for _, e := range t.current.Load().Expiries() {
		print := cert.Fingerprint(e.Certificate)
		if _, twice := next[print]; twice || now.Before(e.Certificate.NotAfter.Add(-warnBefore)) {
			continue
		}
		next[print] = t.warned[print]
		if last := t.warned[print]; !last.IsZero() && now.Sub(last) < warnEvery {
			continue
		}
		next[print] = now
		t.event(CertificateExpires{Certificate: cert.Text(e.Certificate), From: e.From, IsCA: e.IsCA, NotAfter: e.Certificate.NotAfter})
		what := "a certificate expires soon; renew it, or other hosts will refuse this one"
		if e.IsCA {
			what = "a CA expires soon; replace it, or the certificates that it has signed will be refused"
		}
		t.logger.Warn(what, "certificate", cert.Text(e.Certificate), "file", e.From, "not_after", e.Certificate.NotAfter)
	}
	t.warned = next
}

// stats returns the counts, and the next end of a certificate.
func (t *trust) stats() transport.TLSStats {
	c := &t.count
	s := transport.TLSStats{
		Handshakes: c.handshakes.Load(), Failures: c.failures.Load(), Limited: c.limited.Load(),
		Loads: c.loads.Load(), LoadFailures: c.loadFailures.Load(),
	}
	for _, e := range t.current.Load().Expiries() {
		if end := e.Certificate.NotAfter; s.Expires.IsZero() || end.Before(s.Expires) {
			s.Expires = end
		}
	}
	return s
}

// endDistrusted closes the connections whose certificate would be refused now.
func (t *Transport) endDistrusted() {
	for _, id := range t.peerIDs() {
		t.Review(id)
	}
	for _, in := range t.inbound.all() {
		if err := t.trust.verify(in.proof, in.proof.id); isRefusal(err) {
			t.distrust(in.proof.id, in.conn.RemoteAddr().String(), err)
			in.conn.Close()
		}
	}
	for _, l := range t.links() {
		if err := t.trust.verify(l.proof, l.proof.id); isRefusal(err) {
			t.distrust(l.proof.id, l.conn.RemoteAddr().String(), err)
			l.fail(err)
		}
	}
}

// links returns the connections that this host has dialed.
func (t *Transport) links() []*link {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var all []*link
	for _, p := range t.peers {
		for _, line := range p.lines {
			if l := line.linked(); l != nil {
				all = append(all, l)
			}
		}
	}
	return all
}

func (t *Transport) distrust(peer uint64, remote string, err error) {
	t.log.report(topic{peer: peer, message: "ended a connection because of a certificate"}, slog.LevelWarn, func() {
		t.trust.event(CertificateRefused{Peer: peer, Remote: remote, Err: err})
	}, "remote", remote, "error", err)
}
