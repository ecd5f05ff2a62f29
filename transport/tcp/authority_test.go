package tcp

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/transport/cert"
	"github.com/millrace/millrace/transport/transporttest"
)

// authority is a CA of a test, with a clock that the test moves.
type authority struct {
	testing.TB
	ca    *cert.Issuer
	start time.Time
	later atomic.Int64 // how much the clock shows after start
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	start := time.Now()
	ca, err := cert.NewCA(name, cert.Span{NotBefore: start.Add(-time.Hour), NotAfter: start.Add(1000 * time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	return &authority{TB: t, ca: ca, start: start}
}

func (a *authority) now() time.Time { return a.start.Add(time.Duration(a.later.Load())) }

func (a *authority) forward(d time.Duration) { a.later.Add(int64(d)) }

// valid is a span around the start: a minute before it, and d after it.
func (a *authority) valid(d time.Duration) cert.Span {
	return cert.Span{NotBefore: a.start.Add(-time.Minute), NotAfter: a.start.Add(d)}
}

// credentials makes those of a member, which trusts this CA and others.
func (a *authority) credentials(id uint64, valid cert.Span, others ...*authority) *cert.Credentials {
	a.Helper()
	key, err := cert.NewKey()
	if err != nil {
		a.Fatal(err)
	}
	return a.renewed(id, key, valid, others...)
}

func (a *authority) renewed(id uint64, key crypto.Signer, valid cert.Span, others ...*authority) *cert.Credentials {
	a.Helper()
	c, err := a.ca.Member(id, key.Public(), valid)
	if err != nil {
		a.Fatal(err)
	}
	roots := []*x509.Certificate{a.ca.Certificate}
	for _, o := range others {
		roots = append(roots, o.ca.Certificate)
	}
	return &cert.Credentials{Certificate: tls.Certificate{Certificate: [][]byte{c.Raw}, PrivateKey: key}, Roots: roots, CertFrom: "cert.pem", CAFrom: "ca.pem"}
}

// changing is a source of credentials that a test changes.
type changing struct {
	current atomic.Pointer[cert.Credentials]
	err     atomic.Pointer[error]
}

func (c *changing) get() (*cert.Credentials, error) {
	if err := c.err.Load(); err != nil {
		return nil, *err
	}
	return c.current.Load(), nil
}

// tls returns the options of a host that has these credentials for ever.
func (a *authority) tls(c *cert.Credentials) *TLS {
	return &TLS{Credentials: func() (*cert.Credentials, error) { return c, nil }, Now: a.now}
}

// member returns the options of a host with a good certificate.
func (a *authority) member(id uint64) *TLS {
	a.Helper()
	return a.tls(a.credentials(id, a.valid(100*time.Hour)))
}

// The contract of all transports holds with TLS, too.
func TestContractWithTLS(t *testing.T) {
	transporttest.Run(t, func(t testing.TB) transporttest.Network {
		a := newAuthority(t, "test")
		return func(id uint64, addr string) transporttest.Host {
			h, err := Listen(Options{ID: id, Listen: addr, TLS: a.member(id), BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
	})
}
