package tcp

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/transport/cert"
)

// changingHost makes a host whose credentials the test changes.
func changingHost(t *testing.T, a *authority, id uint64, first *cert.Credentials) (*end, *changing) {
	t.Helper()
	source := &changing{}
	source.current.Store(first)
	return hostWith(t, id, &TLS{Credentials: source.get, Now: a.now}), source
}

// pairUnder makes two hosts that are connected in both directions.
func pairUnder(t *testing.T, a *authority) (ends [2]*end, sources [2]*changing) {
	t.Helper()
	for i := range ends {
		id := uint64(i + 1)
		ends[i], sources[i] = changingHost(t, a, id, a.credentials(id, a.valid(200*time.Hour)))
	}
	ends[0].SetPeer(2, ends[1].Addr())
	ends[1].SetPeer(1, ends[0].Addr())
	ends[0].Start(ends[0])
	ends[1].Start(ends[1])
	reaches(t, ends[0], ends[1], 1)
	reaches(t, ends[1], ends[0], 1)
	return ends, sources
}

// Ten times, both hosts get new certificates of a new CA, in the order that docs/operate/tls.md gives. After
// each step both reach each other, and no step ends a connection that may stay.
func TestCertificatesAndCAsRotate(t *testing.T) {
	a := newAuthority(t, "CA 0")
	ends, sources := pairUnder(t, a)
	index := uint64(1)
	step := func(what string, change func(i int) *cert.Credentials) {
		t.Helper()
		for i := range ends { // one after the other, and messages between
			sources[i].current.Store(change(i))
			ends[i].reviewTrust()
			if v := event[CredentialsLoaded](t, ends[i]); v.CAs == 0 {
				t.Errorf("%s: %+v", what, v)
			}
			index++
			reaches(t, ends[0], ends[1], index)
			reaches(t, ends[1], ends[0], index)
		}
	}
	for round := range 10 {
		b := newAuthority(t, fmt.Sprintf("CA %d", round+1))
		old := func(i int) *cert.Credentials { return sources[i].current.Load() }
		before := ends[0].Stats().Dials + ends[1].Stats().Dials
		step("both CAs are trusted", func(i int) *cert.Credentials {
			c := *old(i)
			c.Roots = append(c.Roots[:1:1], b.ca.Certificate)
			return &c
		})
		step("certificates of the new CA", func(i int) *cert.Credentials {
			c := b.credentials(uint64(i+1), b.valid(200*time.Hour), a)
			return c
		})
		if dials := ends[0].Stats().Dials + ends[1].Stats().Dials; dials != before {
			t.Errorf("round %d: %d dials, want none: nothing was distrusted", round, dials-before)
		}
		step("the old CA is removed", func(i int) *cert.Credentials {
			c := *old(i)
			c.Roots = c.Roots[:1]
			return &c
		})
		a = b
		for _, e := range ends {
			eventually(t, "connections under the new CA", func() bool {
				for _, in := range e.inbound.all() {
					if cert.Verify(in.proof.chain, b.credentials(9, b.valid(time.Hour)).Roots, in.proof.id, cert.Dialing, b.now()) != nil {
						return false
					}
				}
				return true
			})
		}
	}
}

// A connection ends when its certificate would be refused: after the end of either, or without its CA.
func TestDistrustedConnectionsEnd(t *testing.T) {
	t.Run("expired", func(t *testing.T) {
		a := newAuthority(t, "ours")
		ends, _ := pairUnder(t, a)
		ends[0].reviewTrust()
		if n := len(ends[0].inbound.all()); n == 0 {
			t.Fatal("there is no connection to end")
		}
		a.forward(201 * time.Hour)
		ends[0].reviewTrust()
		if v := event[CertificateRefused](t, ends[0]); v.Peer != 2 || v.ByPeer || !strings.Contains(v.Err.Error(), "has expired") {
			t.Errorf("%+v", v)
		}
		ends[0].line(t, "ended a connection because of a certificate", "peer=2", "has expired")
		eventually(t, "no connection", func() bool { return len(ends[0].inbound.all()) == 0 && ends[0].Stats().PeersUp == 0 })
	})
	t.Run("CA removed", func(t *testing.T) {
		a, b := newAuthority(t, "ours"), newAuthority(t, "new")
		ends, sources := pairUnder(t, a)
		sources[0].current.Store(b.credentials(1, b.valid(time.Hour)))
		ends[0].reviewTrust()
		ends[0].line(t, "ended a connection because of a certificate", "peer=2", "leads to no CA")
		eventually(t, "no connection", func() bool { return len(ends[0].inbound.all()) == 0 && ends[0].Stats().PeersUp == 0 })
	})
}

// Credentials that cannot be used change nothing, and are reported once for each reason.
func TestBadCredentialsAreNotTaken(t *testing.T) {
	a := newAuthority(t, "ours")
	ends, sources := pairUnder(t, a)
	one, source, good := ends[0], sources[0], sources[0].current.Load()
	unreadable := errors.New("ca.pem: what follows 1 certificates is cut off or damaged")
	refused := func(want string) {
		t.Helper()
		one.reviewTrust()
		one.reviewTrust()
		if v := event[CredentialsRefused](t, one); !strings.Contains(v.Err.Error(), want) {
			t.Errorf("have %v, want %q", v.Err, want)
		}
		one.line(t, "new certificates cannot be used; the host keeps the ones that it has", want)
		if n := len(one.events); n > 0 || one.trust.current.Load() != good {
			t.Errorf("%s: %d more events, or the credentials were taken", want, n)
		}
	}
	source.err.Store(&unreadable)
	refused("is cut off or damaged")
	source.err.Store(nil)
	source.current.Store(a.credentials(3, a.valid(50*time.Hour)))
	refused("names member 3, not member 1")
	a.forward(time.Hour)
	refused("names member 3, not member 1") // once more after an hour
	if s := one.Stats().TLS; s.LoadFailures != 6 || s.Loads != 0 {
		t.Errorf("counted %+v", s)
	}
	reaches(t, ends[0], ends[1], 7)
	source.current.Store(good)
	one.reviewTrust()
	if n := len(one.events); n > 0 {
		t.Errorf("%d events about credentials that have not changed", n)
	}
}

// A week before a certificate or a CA expires there is a warning, and then one each day.
func TestExpiryIsAnnounced(t *testing.T) {
	const day = 24 * time.Hour
	a := newAuthority(t, "ours") // 1,000 hours
	one, source := changingHost(t, a, 1, a.credentials(1, a.valid(10*day)))
	announced := func() (n int) {
		one.reviewTrust()
		for len(one.events) > 0 {
			if v, ok := (<-one.events).(CertificateExpires); ok {
				n++
				if v.IsCA != (v.From == "ca.pem") || v.NotAfter.IsZero() || v.Certificate == "" {
					t.Errorf("%+v", v)
				}
			}
		}
		return n
	}
	for i, row := range []struct {
		forward time.Duration
		want    int
	}{
		{0, 0}, {2 * day, 0}, {day + time.Minute, 1}, {0, 0}, {23 * time.Hour, 0}, {time.Hour, 1}, {5 * day, 1}, {4 * day, 1}, // it has expired
	} {
		a.forward(row.forward)
		if n := announced(); n != row.want {
			t.Errorf("step %d: %d warnings, want %d", i, n, row.want)
		}
	}
	one.line(t, "a certificate expires soon", "file=cert.pem", "not_after=")
	source.current.Store(a.credentials(1, a.valid(900*time.Hour)))
	if n := announced(); n != 0 {
		t.Errorf("%d warnings after the renewal", n)
	}
	a.forward(a.start.Add(1000*time.Hour - 6*day).Sub(a.now())) // before the CA's end
	if n := announced(); n != 2 {
		t.Errorf("%d warnings, want one of the certificate and one of the CA", n)
	}
	one.line(t, "a CA expires soon", "file=ca.pem")
	if have, want := one.Stats().TLS.Expires, a.start.Add(900*time.Hour); have.Sub(want).Abs() > time.Second {
		t.Errorf("the next end is %v, want %v", have, want)
	}
}

// Handshakes of one address, and of all addresses where no host was welcome, are bounded.
func TestHandshakeLimit(t *testing.T) {
	now := time.Now()
	allowed := func(l *handshakeLimit, n int, addr func(i int) string) (ok int) {
		for i := range n {
			if l.allow(addr(i), now) {
				ok++
			}
		}
		return ok
	}
	same := func(addr string) func(int) string { return func(int) string { return addr } }
	many := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255) }

	var one handshakeLimit
	if n := allowed(&one, 1000, same("10.0.0.1")); n != handshakeBurst {
		t.Errorf("%d handshakes at once from one address, want %d", n, handshakeBurst)
	}
	now = now.Add(time.Second)
	if n := allowed(&one, 1000, same("10.0.0.1")); n != handshakesPerSecond {
		t.Errorf("%d handshakes in a second from one address, want %d", n, handshakesPerSecond)
	}
	if n := allowed(&one, 1, same("10.0.0.2")); n != 1 {
		t.Error("one address keeps another one waiting")
	}

	var flood handshakeLimit
	flood.allow("192.0.2.1", now)
	flood.prove("192.0.2.1", now)
	if n := allowed(&flood, 10_000, many); n != strangersBurst-1 {
		t.Errorf("%d handshakes at once from 10,000 addresses, want %d", n, strangersBurst-1)
	}
	if n := len(flood.addrs); n > maxLimitedAddrs {
		t.Errorf("%d addresses are remembered, want at most %d", n, maxLimitedAddrs)
	}
	if n := allowed(&flood, 10, same("192.0.2.1")); n != 10 {
		t.Errorf("a flood leaves %d of 10 handshakes to a member", n)
	}
	now = now.Add(time.Second)
	if n := allowed(&flood, 10_000, many); n != strangersPerSecond {
		t.Errorf("%d handshakes in a second from 10,000 addresses, want %d", n, strangersPerSecond)
	}
	now = now.Add(time.Hour) // the addresses of the flood are forgotten
	if flood.allow("198.51.100.1", now); flood.addrs["198.51.100.1"] == nil || flood.addrs["192.0.2.1"] == nil {
		t.Error("a new address is not remembered after a flood, or the member's is not")
	}
	if limitKey("2001:db8::1") != limitKey("2001:db8::ffff:1") || limitKey("2001:db8::1") == limitKey("2001:db8:0:1::1") || limitKey("fe80::1%eth0") != limitKey("fe80::2") || limitKey("::ffff:10.0.0.1") == limitKey("::ffff:10.0.0.2") {
		t.Error("an IPv6 network of 64 bits is one address, and an IPv4 address is one")
	}
}

// A host that begins handshakes too fast is turned away before any of them, and another address is not.
func TestHandshakeFlood(t *testing.T) {
	a := newAuthority(t, "ours")
	e := hostWith(t, 1, a.member(1))
	now := time.Now().Add(time.Hour) // so that no token comes back during the test
	for range handshakeBurst {
		e.limit.allow("127.0.0.1", now)
	}
	e.Start(e)
	w := dialed(t, e.Transport)
	w.closed()
	e.line(t, "too many TLS handshakes from its address")
	if s := e.Stats().TLS; s.Limited != 1 || s.Failures+s.Handshakes != 0 {
		t.Errorf("counted %+v", s)
	}
}

// The functions of TLS panic, or end their goroutine, while the transport works. Connections stay, what is
// refused says which function it was, and when it works again all is as before.
func TestUserFunctionsOfTLS(t *testing.T) {
	for how, end := range map[string]func(){"panicked: boom": func() { panic("boom") }, "ended its goroutine": runtime.Goexit} {
		a := newAuthority(t, "ours")
		var broken atomic.Pointer[string]
		at := func(name string) {
			if b := broken.Load(); b != nil && *b == name {
				end()
			}
		}
		breakIn := func(name string) { broken.Store(&name) }
		first := a.credentials(1, a.valid(200*time.Hour))
		one := hostWith(t, 1, &TLS{
			Credentials: func() (*cert.Credentials, error) { at("Credentials"); return first, nil },
			Now:         func() time.Time { at("Now"); return a.now() },
		})
		events := one.trust.o.Events
		one.trust.o.Events = func(e TLSEvent) { at("Events"); events(e) }
		two, _ := changingHost(t, a, 2, a.credentials(2, a.valid(200*time.Hour)))
		one.SetPeer(2, two.Addr())
		two.SetPeer(1, one.Addr())
		one.Start(one)
		two.Start(two)
		reaches(t, one, two, 1)
		reaches(t, two, one, 1)

		breakIn("Credentials")
		one.reviewTrust()
		if v := event[CredentialsRefused](t, one); !strings.Contains(v.Err.Error(), "Credentials of TLS "+how) {
			t.Errorf("%s: %v", how, v.Err)
		}
		dials := one.Stats().Dials + two.Stats().Dials
		breakIn("Now")
		one.reviewTrust()
		reaches(t, one, two, 2)
		reaches(t, two, one, 2)
		if n := one.Stats().Dials + two.Stats().Dials; n != dials {
			t.Errorf("%s: the time is not known for a moment, and %d connections were made again", how, n-dials)
		}
		one.line(t, "certificates cannot be compared with the time", "Now of TLS "+how)
		three, _ := changingHost(t, a, 3, a.credentials(3, a.valid(200*time.Hour)))
		three.SetPeer(1, one.Addr())
		three.Start(three)
		one.SetPeer(3, three.Addr())
		if v := event[CertificateRefused](t, three); !strings.Contains(v.Err.Error(), "Now of TLS "+how) || strings.Contains(v.Err.Error(), "goroutine 1") || !v.ByPeer {
			t.Errorf("%s: a new connection: %+v", how, v)
		}
		breakIn("Events")
		one.trust.event(CredentialsRefused{Err: errors.New("lost")})
		one.line(t, "an event of certificates is lost", "Events of TLS "+how)
		breakIn("")
		reaches(t, three, one, 3)
		reaches(t, one, three, 3)
	}
}
