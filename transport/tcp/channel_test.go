package tcp

import (
	"crypto/tls"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// What is beneath a TLS connection: bounds of bytes and of time.

// What a stranger can make this host read is bounded, in whatever it is wrapped.
func TestOversizedHandshake(t *testing.T) {
	a := newAuthority(t, "ours")
	e := hostWith(t, 1, a.member(1))
	e.Start(e)
	raw, err := net.Dial("tcp", e.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	c := a.credentials(2, a.valid(time.Hour)).Certificate
	for range 200 { // a chain of some 100 KiB, which crypto/tls takes
		c.Certificate = append(c.Certificate, c.Certificate[0])
	}
	_ = raw.SetDeadline(time.Now().Add(maxWait))
	s := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{c}, NextProtos: []string{protocol}})
	_ = s.Handshake()
	_, _ = io.Copy(io.Discard, raw) // until it is closed
	e.line(t, "more than 49152 bytes before it was known")

	// The channel itself, with a reader that asks for more than is left.
	ch := &channel{Conn: pipeOf(t, make([]byte, 2*maxHandshakeBytes)), budget: maxHandshakeBytes}
	n, err := io.Copy(io.Discard, ch)
	if n != maxHandshakeBytes || err == nil {
		t.Errorf("read %d bytes, error %v, want %d", n, err, maxHandshakeBytes)
	}
}

// pipeOf returns a connection from which content can be read.
func pipeOf(t *testing.T, content []byte) net.Conn {
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close(); there.Close() })
	go func() { _, _ = there.Write(content) }()
	return here
}

// A member that stops in the middle of a TLS record is not waited for, also if no byte of a frame has come.
func TestSilenceInARecord(t *testing.T) {
	a := newAuthority(t, "ours")
	e := hostWith(t, 1, a.member(1))
	e.o.StallTimeout, e.o.BulkStallTimeout = 50*time.Millisecond, 50*time.Millisecond
	e.SetPeer(2, "127.0.0.1:1")
	e.Start(e)
	for _, n := range []int{1, 4, 5, 6, 100} {
		raw, err := net.Dial("tcp", e.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.SetDeadline(time.Now().Add(maxWait))
		ch := &channel{Conn: raw, budget: maxHandshakeBytes}
		s := tls.Client(ch, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{a.credentials(2, a.valid(time.Hour)).Certificate}, NextProtos: []string{protocol}})
		if _, err := s.Write(helloOf(2, 1).append(nil)); err != nil {
			t.Fatal(err)
		}
		if v, err := readVerdict(s); err != nil || v.code != welcome {
			t.Fatalf("verdict %v, %v", v, err)
		}
		if _, err := s.Write(frame(uint64(n), 10)); err != nil {
			t.Fatal(err)
		}
		if index := next(t, e.got, "a frame"); index != uint64(n) {
			t.Errorf("message %d, want %d", index, n)
		}
		sealed, err := ch.sealOn(s)(frame(9, 300))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := raw.Write(sealed[:n]); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, raw); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%d bytes of a record: %v", n, err)
		}
		raw.Close()
	}
	if len(e.got) > 0 {
		t.Error("half a record was delivered")
	}
}

// Between two records there is no limit, and one of a frame stays when a record ends.
func TestLimitOfARecord(t *testing.T) {
	c := &limited{}
	ch := &channel{Conn: c, known: true, stall: time.Minute}
	read := func(bytes ...byte) {
		t.Helper()
		c.next = bytes
		if n, err := ch.Read(make([]byte, 100)); n != len(bytes) || err != nil {
			t.Fatalf("%d bytes, %v", n, err)
		}
	}
	expect := func(what string, limited bool) {
		t.Helper()
		if !c.limit.IsZero() != limited {
			t.Errorf("%s: limit %v", what, c.limit)
		}
	}
	read(23, 3, 3, 0, 1, 7)
	expect("between two records", false)
	read(23, 3)
	expect("a record has begun, and nothing waits for it", false)
	read(3, 0, 2, 1)
	expect("in a record", true)
	read(2)
	expect("after it", false)
	if err := ch.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	frame := c.limit
	read(23, 3, 3, 0, 1)
	read(7)
	if c.limit != frame {
		t.Errorf("the limit of the frame is %v, was %v", c.limit, frame)
	}
}

// limited is a connection that keeps its deadline.
type limited struct {
	net.Conn
	next  []byte
	limit time.Time
}

func (c *limited) Read(b []byte) (int, error) { return copy(b, c.next), nil }

func (c *limited) SetReadDeadline(at time.Time) error { c.limit = at; return nil }

// A stream is followed record by record, however it is cut.
func TestRecordsAreFollowed(t *testing.T) {
	stream := slices.Concat([]byte{23, 3, 3, 0, 3, 1, 2, 3}, []byte{22, 3, 3, 1, 0}, make([]byte, 256), []byte{23, 3, 3, 0, 0})
	ends := map[int]bool{0: true, 8: true, 8 + 261: true, len(stream): true}
	for step := 1; step <= 300; step++ {
		var r record
		for at := 0; at < len(stream); {
			n := min(step, len(stream)-at)
			r.pass(stream[at : at+n])
			if at += n; r.begun() == ends[at] {
				t.Fatalf("after %d bytes, %d at a time: begun %v", at, step, r.begun())
			}
		}
	}
}

// The time limit of the handshake covers that of TLS, on both sides.
func TestSilenceInTheTLSHandshake(t *testing.T) {
	a := newAuthority(t, "ours")
	e := hostWith(t, 1, a.member(1))
	e.o.HandshakeTimeout = 50 * time.Millisecond
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	e.SetPeer(2, silent.Addr().String())
	e.Start(e)
	e.line(t, "cannot connect to a peer", "the TLS handshake failed", "i/o timeout")

	hello := clientHello(t)
	for _, n := range []int{0, 1, 5, len(hello) - 1, len(hello)} {
		w := dialed(t, e.Transport)
		w.write(hello[:n])
		if _, err := io.Copy(io.Discard, w); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	raw, err := net.Dial("tcp", e.Addr()) // a handshake, and no hello
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(maxWait))
	s := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{a.credentials(2, a.valid(time.Hour)).Certificate}, NextProtos: []string{protocol}})
	if err := s.Handshake(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, raw); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}

// clientHello returns what a TLS client sends first.
func clientHello(t *testing.T) []byte {
	t.Helper()
	here, there := net.Pipe()
	go func() {
		_ = tls.Client(there, &tls.Config{InsecureSkipVerify: true}).Handshake()
		there.Close()
	}()
	defer here.Close()
	first := make([]byte, 8<<10)
	n, err := here.Read(first)
	if err != nil {
		t.Fatal(err)
	}
	return first[:n]
}

// Strangers that send the beginning of a huge handshake cost little memory each.
func TestMemoryOfStrangers(t *testing.T) {
	a := newAuthority(t, "ours")
	e := hostWith(t, 1, a.member(1))
	e.o.HandshakeTimeout = time.Hour
	e.Start(e)
	const strangers, perStranger = maxStrangersPerAddr, 512 << 10
	const most = maxHandshakeBytes - 1 // one more byte, and the connection ends
	var stream []byte
	for i := 0; len(stream)+recordHeaderBytes < most; i++ {
		n := min(16<<10, most-len(stream)-recordHeaderBytes)
		body := make([]byte, n)
		if i == 0 {
			copy(body, []byte{1, 0, 0xff, 0xff}) // a client hello of 65,535 bytes
		}
		stream = append(append(stream, tlsHandshake, 3, 1, byte(n>>8), byte(n)), body...)
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range strangers {
		w := dialed(t, e.Transport)
		w.write(stream)
	}
	eventually(t, "all strangers wait", func() bool {
		e.inbound.mu.Lock()
		defer e.inbound.mu.Unlock()
		return len(e.inbound.strangers) == strangers
	})
	if after := heap(); after > before+strangers*perStranger {
		t.Errorf("%d strangers cost %d bytes, want at most %d each", strangers, after-before, perStranger)
	} else {
		t.Logf("%d strangers cost %d bytes", strangers, int64(after)-int64(before))
	}
}

// A stranger that refuses this host, in words of its choice, does not pass for a member, and its words are
// made printable.
func TestRefusalOfAStranger(t *testing.T) {
	a, b := newAuthority(t, "ours"), newAuthority(t, "theirs")
	e := hostWith(t, 1, a.member(1))
	e.SetPeer(2, "127.0.0.1:1")
	e.Start(e)
	for id, issuer := range map[uint64]*authority{0: b, 2: a} {
		raw, err := net.Dial("tcp", e.Addr())
		if err != nil {
			t.Fatal(err)
		}
		_ = raw.SetDeadline(time.Now().Add(maxWait))
		s := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{issuer.credentials(2, a.valid(time.Hour)).Certificate}, NextProtos: []string{protocol}})
		if _, err := s.Write(appendRefusal(nil, spoken, 1, "no\x1b[2J\nlevel=ERROR")); err != nil {
			t.Fatal(err)
		}
		if v := event[CertificateRefused](t, e); v.Peer != id || !v.ByPeer || !strings.HasSuffix(v.Err.Error(), "refuses this one: no?[2J?level=ERROR") {
			t.Errorf("%+v, want peer %d", v, id)
		}
		raw.Close()
	}
}
