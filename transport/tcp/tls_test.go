package tcp

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/cert"
)

// end is one host of a test with its log, its events and what it was asked to admit.
type end struct {
	*ledger
	*Transport
	lines    chan string
	events   chan TLSEvent
	admitted chan transport.Introduction
}

func (e *end) Admit(peer transport.Introduction, _ string) error {
	select {
	case e.admitted <- peer:
	default:
	}
	return nil
}

func (e *end) Unreachable(uint64) {}

// hostWith makes host id, not started. A nil TLS is plain TCP.
func hostWith(t *testing.T, id uint64, secure *TLS) *end {
	t.Helper()
	e := &end{ledger: newLedger(), lines: make(chan string, 1000), events: make(chan TLSEvent, 1000), admitted: make(chan transport.Introduction, 1000)}
	if secure != nil {
		d := *secure
		d.ReloadEvery = time.Hour // tests call reviewTrust
		d.Events = func(v TLSEvent) {
			select {
			case e.events <- v:
			default:
			}
		}
		secure = &d
	}
	tr, err := Listen(Options{ID: id, TLS: secure, BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond, Logger: slog.New(slog.NewTextHandler(lineWriter(e.lines), nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tr.Close() })
	e.Transport = tr
	return e
}

// line waits for a line of the log with all texts.
func (e *end) line(t *testing.T, texts ...string) {
	t.Helper()
	var last string
	for {
		select {
		case last = <-e.lines:
		case <-time.After(maxWait):
			t.Fatalf("no line has %q; the last was %s", texts, last)
		}
		all := true
		for _, text := range texts {
			all = all && strings.Contains(last, text)
		}
		if all {
			return
		}
	}
}

// event waits for an event of a kind.
func event[E TLSEvent](t *testing.T, e *end) E {
	t.Helper()
	for {
		if v, ok := next(t, e.events, fmt.Sprintf("a %T", *new(E))).(E); ok {
			return v
		}
	}
}

func heartbeat(from, to, index uint64) []transport.Envelope {
	return []transport.Envelope{{Group: 1, Message: raftpb.Message{Type: raftpb.MsgHeartbeat, From: from, To: to, Index: index}}}
}

// reaches sends from one host to the other until something newer than index arrives.
func reaches(t *testing.T, from, to *end, index uint64) {
	t.Helper()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for deadline := time.After(maxWait); ; {
		from.Send(to.o.ID, heartbeat(from.o.ID, to.o.ID, index))
		select {
		case have := <-to.got:
			if have == index {
				return
			}
		case <-again.C:
		case <-deadline:
			t.Fatalf("host %d does not reach host %d", from.o.ID, to.o.ID)
		}
	}
}

// Each refusal is a sentence in the logs of both ends. Host 1 dials host 2.
func TestCertificatesAreRefusedAtBothEnds(t *testing.T) {
	a, b := newAuthority(t, "ours"), newAuthority(t, "theirs")
	good := func(id uint64) *cert.Credentials { return a.credentials(id, a.valid(100*time.Hour)) }
	expired := cert.Span{NotBefore: a.start.Add(-time.Hour), NotAfter: a.start.Add(-time.Minute)}
	future := cert.Span{NotBefore: a.start.Add(time.Hour), NotAfter: a.start.Add(2 * time.Hour)}
	for _, row := range []struct {
		name           string
		dials, accepts *cert.Credentials // nil: plain TCP
		want           string            // at both ends
		byDialer       bool              // it refuses
	}{
		{"another CA", b.credentials(1, b.valid(time.Hour)), good(2), `signed by \"CN=ours\", leads to no CA that this host trusts: \"CN=theirs\"`, true},
		{"another CA, which the dialing host trusts", b.credentials(1, b.valid(time.Hour), a), good(2), `signed by \"CN=theirs\", leads to no CA that this host trusts: \"CN=ours\"`, false},
		{"the certificate of another member dials", good(3), good(2), "names member 3, not member 1", false},
		{"the certificate of another member accepts", good(1), good(3), "names member 3, not member 2", true},
		{"an expired one dials", a.credentials(1, expired), good(2), "has expired: it was valid until", false},
		{"an expired one accepts", good(1), a.credentials(2, expired), "has expired: it was valid until", true},
		{"one of the future dials", a.credentials(1, future), good(2), "is not valid before", false},
		{"one of the future accepts", good(1), a.credentials(2, future), "is not valid before", true},
		{"plain TCP dials", nil, good(2), "host 1 speaks plain TCP, and host 2 TLS; configure TLS on both, or on none", false},
		{"plain TCP accepts", good(1), nil, "plain TCP", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			secured := func(id uint64, c *cert.Credentials) *end {
				if c == nil {
					return hostWith(t, id, nil)
				}
				e := hostWith(t, id, a.member(id))
				e.trust.current.Store(c) // which Listen would refuse
				e.trust.o.Credentials = func() (*cert.Credentials, error) { return c, nil }
				return e
			}
			one, two := secured(1, row.dials), secured(2, row.accepts)
			two.SetPeer(1, "127.0.0.1:1")
			two.Start(two)
			one.SetPeer(2, two.Addr())
			one.Start(one)
			one.line(t, "cannot connect to a peer", row.want)
			two.line(t, "refused a connection", row.want)
			if row.dials != nil && row.accepts != nil {
				if v := event[CertificateRefused](t, one); v.ByPeer == row.byDialer || v.Peer != 2 || v.Remote != two.Addr() || v.Err == nil {
					t.Errorf("the dialing host reports %+v", v)
				}
				if v := event[CertificateRefused](t, two); v.ByPeer != row.byDialer || v.Err == nil {
					t.Errorf("the accepting host reports %+v", v)
				}
			}
			one.Send(2, heartbeat(1, 2, 1))
			one.Close()
			two.Close()
			if len(two.got) > 0 || len(two.admitted) > 0 || len(one.admitted) > 0 {
				t.Errorf("%d messages, %d and %d introductions got through", len(two.got), len(two.admitted), len(one.admitted))
			}
		})
	}
}

// Both receivers learn which key the other end has proved, and a renewal keeps it.
func TestTheKeyIsDelivered(t *testing.T) {
	a := newAuthority(t, "ours")
	one, two := hostWith(t, 1, a.member(1)), hostWith(t, 2, a.member(2))
	two.SetPeer(1, one.Addr())
	one.SetPeer(2, two.Addr())
	one.Start(one)
	two.Start(two)
	reaches(t, one, two, 1)
	reaches(t, two, one, 2)
	for _, pair := range [][2]*end{{one, two}, {two, one}} {
		chain, err := pair[1].trust.current.Load().Chain()
		if err != nil {
			t.Fatal(err)
		}
		want := cert.KeyHash(chain[0])
		for range 2 { // as the one that dials and as the one that accepts
			if have := next(t, pair[0].admitted, "an introduction"); have.Key != want || have.ID != pair[1].o.ID {
				t.Errorf("host %d proved %x, want %x", have.ID, have.Key, want)
			}
		}
	}
}

// stranger dials tr with a configuration of its own, and returns what the handshake and the first read say.
func stranger(t *testing.T, e *end, c *tls.Config) (state tls.ConnectionState, err error) {
	t.Helper()
	c.InsecureSkipVerify = true
	raw, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(maxWait))
	s := tls.Client(raw, c)
	if err := s.Handshake(); err != nil {
		return s.ConnectionState(), err
	}
	if _, err := s.Write(helloOf(2, 1).append(nil)); err != nil {
		return s.ConnectionState(), err
	}
	v, err := readVerdict(s)
	if err == nil && v.code != welcome {
		err = fmt.Errorf("refused: %s", v.why)
	}
	return s.ConnectionState(), err
}

func TestStrangersAreRefused(t *testing.T) {
	a := newAuthority(t, "ours")
	e := hostWith(t, 1, a.member(1))
	e.SetPeer(2, "127.0.0.1:1")
	e.Start(e)
	good := a.credentials(2, a.valid(time.Hour)).Certificate
	for _, row := range []struct {
		name   string
		c      *tls.Config
		want   string // at the stranger
		logged string
	}{
		{"TLS 1.2", &tls.Config{MaxVersion: tls.VersionTLS12, Certificates: []tls.Certificate{good}, NextProtos: []string{protocol}}, "protocol version", "unsupported versions"},
		{"no certificate", &tls.Config{NextProtos: []string{protocol}}, "certificate required", "didn't provide a certificate"},
		{"no protocol", &tls.Config{Certificates: []tls.Certificate{good}}, "", "does not name the protocol"},
		{"another protocol", &tls.Config{Certificates: []tls.Certificate{good}, NextProtos: []string{"h2"}}, "no application protocol", "unsupported application protocols"},
	} {
		_, err := stranger(t, e, row.c)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		e.trustless(t, row.name, row.logged)
	}
	state, err := stranger(t, e, &tls.Config{Certificates: []tls.Certificate{good}, NextProtos: []string{protocol}})
	if err != nil || state.Version != tls.VersionTLS13 || state.DidResume {
		t.Errorf("a good certificate: %+v, %v", state, err)
	}
	if n := e.Stats().TLS; n.Failures != 4 || n.Handshakes != 1 || n.Expires.IsZero() {
		t.Errorf("counted %+v", n)
	}
}

// trustless waits until a refusal is counted as logged: lines about strangers are at most one a second, so it
// looks at what greet returns by way of the log of the first one, and clears the limit.
func (e *end) trustless(t *testing.T, name, want string) {
	t.Helper()
	e.line(t, want)
	e.log.mu.Lock()
	clear(e.log.topics)
	e.log.mu.Unlock()
}

// Sessions are not resumed: each connection is checked with the CAs of its time.
func TestNoSessionTickets(t *testing.T) {
	a := newAuthority(t, "ours")
	e := hostWith(t, 1, a.member(1))
	e.SetPeer(2, "127.0.0.1:1")
	e.Start(e)
	c := &tls.Config{Certificates: []tls.Certificate{a.credentials(2, a.valid(time.Hour)).Certificate}, NextProtos: []string{protocol}, ClientSessionCache: tls.NewLRUClientSessionCache(4), ServerName: "x"}
	for range 3 {
		if state, err := stranger(t, e, c); err != nil || state.DidResume {
			t.Errorf("resumed %v, %v", state.DidResume, err)
		}
	}
}

// Garbage in place of a TLS handshake costs its connection.
func TestGarbageInsteadOfTLS(t *testing.T) {
	a := newAuthority(t, "ours")
	e := hostWith(t, 1, a.member(1))
	e.Start(e)
	record := func(kind byte, n int) []byte {
		return append([]byte{kind, 3, 3, byte(n >> 8), byte(n)}, make([]byte, min(n, 100))...)
	}
	bad := [][]byte{
		bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 3), bytes.Repeat([]byte{0xff}, 100), record(22, 0xffff), record(22, 0), record(23, 50), record(20, 1),
		append([]byte{22, 3, 3, 0, 4, 1, 0xff, 0xff, 0xff}, make([]byte, 200)...), []byte("millrace"), bytes.Repeat([]byte("m"), 100),
	}
	for i, b := range bad {
		raw, err := net.Dial("tcp", e.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.SetDeadline(time.Now().Add(maxWait))
		if _, err := raw.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = raw.(*net.TCPConn).CloseWrite()
		if _, err := io.Copy(io.Discard, raw); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("garbage %d: %v", i, err)
		}
		raw.Close()
	}
	eventually(t, "all refused", func() bool { return e.Stats().Refusals == uint64(len(bad)) })
}

// Connections that begin a TLS handshake and stop hold slots of strangers only: a member gets in.
func TestSlowTLSHandshakes(t *testing.T) {
	a := newAuthority(t, "ours")
	two := hostWith(t, 2, a.member(2))
	two.o.HandshakeTimeout = time.Hour
	two.o.MaxStrangers = 8
	one := hostWith(t, 1, a.member(1))
	two.SetPeer(1, one.Addr())
	two.Start(two)
	first := clientHello(t)
	var slow []net.Conn
	for i := range 20 {
		c, err := net.Dial("tcp", two.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		slow = append(slow, c)
		_, _ = c.Write(first[:i*5])
	}
	one.SetPeer(2, two.Addr())
	one.Start(one)
	reaches(t, one, two, 1)
	eventually(t, "few strangers", func() bool {
		two.inbound.mu.Lock()
		defer two.inbound.mu.Unlock()
		return len(two.inbound.strangers) <= 8
	})
	if two.Stats().TLS.Handshakes == 0 || len(slow) != 20 {
		t.Error("no handshake was counted")
	}
}

// Bytes that are changed on their way cost the connection, and never a message.
func TestChangedBytes(t *testing.T) {
	a := newAuthority(t, "ours")
	one, two := hostWith(t, 1, a.member(1)), hostWith(t, 2, a.member(2))
	two.SetPeer(1, "127.0.0.1:1")
	two.Start(two)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	flips := make(chan struct{}, 1)
	go proxy(l, two.Addr(), flips)
	one.SetPeer(2, l.Addr().String())
	one.Start(one)
	for index := uint64(1); index <= 4; index++ {
		reaches(t, one, two, index)
		flips <- struct{}{}
		two.sentTo(t, one, "bad record MAC")
		two.log.mu.Lock()
		clear(two.log.topics)
		two.log.mu.Unlock()
	}
	if n := two.Stats().DroppedSender + two.Stats().BadFrames; n > 0 {
		t.Errorf("%d changed messages were decrypted", n)
	}
}

// sentTo sends messages from one host until the other has a line with a text.
func (e *end) sentTo(t *testing.T, from *end, text string) {
	t.Helper()
	stop := make(chan struct{})
	defer close(stop)
	go func() {
		again := time.NewTicker(time.Millisecond)
		defer again.Stop()
		for {
			select {
			case <-stop:
				return
			case <-again.C:
				from.Send(e.o.ID, heartbeat(from.o.ID, e.o.ID, 1000))
			}
		}
	}()
	e.line(t, text)
}

// proxy passes connections on, and changes one bit of what the dialing side sends when it is told to.
func proxy(l net.Listener, to string, flips <-chan struct{}) {
	for {
		from, err := l.Accept()
		if err != nil {
			return
		}
		onto, err := net.Dial("tcp", to)
		if err != nil {
			from.Close()
			return
		}
		go func() {
			_, _ = io.Copy(from, onto)
			from.Close()
		}()
		go func() {
			defer onto.Close()
			defer from.Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := from.Read(buf)
				if err != nil {
					return
				}
				select {
				case <-flips:
					buf[n-1] ^= 1
				default:
				}
				if _, err := onto.Write(buf[:n]); err != nil {
					return
				}
			}
		}()
	}
}

func TestTLSOptions(t *testing.T) {
	a := newAuthority(t, "ours")
	good := a.credentials(1, a.valid(time.Hour))
	broken := *good
	broken.Roots = []*x509.Certificate{}
	for want, o := range map[string]*TLS{
		"has no Credentials":                 {},
		"ReloadEvery is -1s":                 {Credentials: func() (*cert.Credentials, error) { return good, nil }, ReloadEvery: -time.Second},
		"has returned no credentials":        {Credentials: func() (*cert.Credentials, error) { return nil, nil }},
		"no such file":                       {Credentials: func() (*cert.Credentials, error) { return nil, fmt.Errorf("no such file") }},
		"names member 2, not member 1":       a.member(2),
		"cert.pem: the certificate is refus": a.tls(a.credentials(1, cert.Span{NotBefore: a.start.Add(-time.Hour), NotAfter: a.start.Add(-time.Second)})),
		"without one no host is trusted":     a.tls(&broken),
	} {
		tr, err := Listen(Options{ID: 1, TLS: o})
		if err == nil {
			tr.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("have %v, want %q", err, want)
		}
	}
}
