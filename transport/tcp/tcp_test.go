package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// What only sockets can do wrong. The contract of all transports is tested in transport/conformance_test.go.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// choosy admits only hosts of its own cluster.
type choosy struct {
	*ledger
	cluster uint64
}

func (c choosy) Introduce() transport.Introduction { return transport.Introduction{Cluster: c.cluster} }

func (c choosy) Admit(i transport.Introduction, _ string) error {
	if i.Cluster != c.cluster {
		return fmt.Errorf("host %d is of cluster %d, not of cluster %d", i.ID, i.Cluster, c.cluster)
	}
	return nil
}

func TestHandshakeRefusals(t *testing.T) {
	tr := listening(t, choosy{newLedger(), 0}, nil)
	other := helloOf(2, 1)
	other.from.Cluster = 8
	stranger := helloOf(3, 1)
	stranger.from.Cluster = 8
	later := helloOf(2, 1)
	later.version++
	rows := []struct {
		name string
		h    hello
		code verdictCode
		why  string
	}{
		{"later version", later, otherVersion, "different versions"},
		{"other cluster", other, refused, "host 2 is of cluster 8, not of cluster 0"},
		{"meant for another host", helloOf(2, 3), refused, "host 2 dialed host 3, but this address belongs to host 1"},
		{"unknown sender", helloOf(3, 1), refused, "host 3 is not in the address book of host 1"},
		{"unknown sender of another cluster", stranger, refused, "host 3 is of cluster 8, not of cluster 0"},
		{"our own id", helloOf(1, 1), refused, "the dialing host and the dialed host have the same id, 1"},
	}
	for _, row := range rows {
		w := dialed(t, tr)
		w.write(row.h.append(nil))
		if v, err := readVerdict(w); err != nil || v.code != row.code || !strings.Contains(v.why, row.why) {
			t.Errorf("%s: verdict %+v, error %v, want %q", row.name, v, err, row.why)
		}
		if row.code != otherVersion { // of which the rest is not read: it may have any form
			w.closed()
		}
	}
	huge := helloOf(2, 1).append(nil)
	binary.LittleEndian.PutUint32(huge[20:], transport.MaxIntroductionBytes+1)
	flipped := helloOf(2, 1).append(nil)
	flipped[30] ^= 1
	bad := [][]byte{huge, flipped, bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 3)}
	for _, b := range bad {
		w := dialed(t, tr)
		w.write(b)
		w.closed()
	}
	tr.Close()
	if s := tr.Stats(); s.Refusals != uint64(len(rows)+len(bad)) || s.MessagesReceived != 0 {
		t.Errorf("stats %+v, want %d refusals", s, len(rows)+len(bad))
	}
}

// A refusal, with its reason, is in the logs of the dialing host and of the refusing host. No message passes,
// and the sender gets a report.
func TestDialerIsRefused(t *testing.T) {
	here, there := make(chan string, 1000), make(chan string, 1000)
	logTo := func(lines chan string) *slog.Logger { return slog.New(slog.NewTextHandler(lineWriter(lines), nil)) }
	for name, clusters := range map[string][2]uint64{"by the one that accepts": {7, 8}, "by the one that dials": {8, 7}} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			other := listening(t, receiverOf(clusters[0], newLedger()), func(o *Options) { o.ID, o.Logger = 2, logTo(there) })
			other.SetPeer(1, "127.0.0.1:1")
			tr := listening(t, receiverOf(clusters[1], l), func(o *Options) { o.Logger = logTo(here) })
			tr.SetPeer(2, other.Addr())
			reason := "is of cluster 8, not of cluster 7"
			for line := next(t, here, "log line"); !strings.Contains(line, reason); {
				line = next(t, here, "log line")
			}
			if peer := next(t, l.unreachable, "report"); peer != 2 {
				t.Errorf("host %d reported, want 2", peer)
			}
			for clusters[0] == 7 {
				if strings.Contains(next(t, there, "log line at the other end"), reason) {
					break
				}
			}
			if s := other.Stats(); s.MessagesReceived != 0 {
				t.Errorf("%d messages got through", s.MessagesReceived)
			}
		})
	}
}

// receiverOf returns a choosy receiver in cluster 7; in cluster 8 one that belongs to it and admits every
// host.
func receiverOf(cluster uint64, l *ledger) transport.Receiver {
	if cluster == 7 {
		return choosy{l, 7}
	}
	return openTo{l, cluster}
}

type openTo struct {
	*ledger
	cluster uint64
}

func (o openTo) Introduce() transport.Introduction { return transport.Introduction{Cluster: o.cluster} }

type lineWriter chan string

func (c lineWriter) Write(b []byte) (int, error) {
	select {
	case c <- string(b):
	default:
	}
	return len(b), nil
}

func TestBadFramesCostTheConnection(t *testing.T) {
	huge := make([]byte, transport.HeaderBytes)
	binary.LittleEndian.PutUint32(huge, 1<<20+1)
	flipped := frame(1, 100)
	flipped[40] ^= 1
	flippedLarge := frame(1, 200<<10)
	flippedLarge[100<<10] ^= 1
	garbage := append(transport.BeginFrame(nil), bytes.Repeat([]byte{0xff}, 30)...)
	transport.SealFrame(garbage)
	l := newLedger()
	tr := listening(t, l, func(o *Options) { o.FrameBytes = 1 << 20 })
	bad := [][]byte{huge, flipped, flippedLarge, garbage}
	for i, b := range bad {
		w := introduced(t, tr)
		w.write(append(frame(uint64(i), 10), b...))
		w.closed()
		if index := next(t, l.got, "the good frame before the bad"); index != uint64(i) {
			t.Errorf("message %d arrived, want %d", index, i)
		}
	}
	tr.Close()
	if s := tr.Stats(); s.BadFrames != uint64(len(bad)) || s.MessagesReceived != uint64(len(bad)) {
		t.Errorf("stats %+v, want %d bad frames and as many messages", s, len(bad))
	}
}

// Frames that are cut at every kind of position, and sent byte by byte, arrive whole or not at all.
func TestCutFrames(t *testing.T) {
	l := newLedger()
	tr := listening(t, l, nil)
	whole := frame(5, 300)
	for _, n := range []int{0, 1, transport.HeaderBytes, transport.HeaderBytes + 1, len(whole) - 1} {
		w := introduced(t, tr)
		w.write(whole[:n])
		_ = w.Conn.(*net.TCPConn).CloseWrite()
		w.closed()
	}
	w := introduced(t, tr)
	for i := range whole {
		w.write(whole[i : i+1])
	}
	if index := next(t, l.got, "a frame in small pieces"); index != 5 {
		t.Errorf("message %d, want 5", index)
	}
	if s := tr.Stats(); s.MessagesReceived != 1 || s.BadFrames != 0 {
		t.Errorf("stats %+v, want one message and no bad frame", s)
	}
}

// A peer that sends nothing, or stops in the middle of a frame, is not waited for.
func TestSilence(t *testing.T) {
	l := newLedger()
	tr := listening(t, l, func(o *Options) { o.HandshakeTimeout, o.StallTimeout = 50*time.Millisecond, 50*time.Millisecond })
	silent := dialed(t, tr)
	silent.closed()
	for _, n := range []int{3, 50, 100 << 10} {
		w := introduced(t, tr)
		w.write(frame(1, 300<<10)[:n])
		w.closed()
	}
	if len(l.got) != 0 {
		t.Error("half a frame was delivered")
	}
}

// A peer that sends a byte now and then, fast enough for every single read, is not waited for: each 64 KiB of
// a frame have one time limit.
func TestSlowTrickle(t *testing.T) {
	for _, size := range []int{1 << 10, 200 << 10} {
		c := &trickle{Conn: nil, bytes: frame(1, size)}
		if _, err := newFrameReader(c, 1<<20, time.Hour).next(); err != nil {
			t.Fatal(err)
		}
		if most := 2 + 2*(size/stallChunkBytes); c.limits > most {
			t.Errorf("a frame of %d bytes had its time limit set %d times, at most %d: every byte buys time", size, c.limits, most)
		}
	}
}

// trickle is a connection on which one byte at a time arrives. It counts how often a deadline is set.
type trickle struct {
	net.Conn
	bytes  []byte
	limits int
}

func (c *trickle) Read(b []byte) (int, error) {
	n := copy(b[:1], c.bytes)
	c.bytes = c.bytes[n:]
	return n, nil
}

func (c *trickle) SetReadDeadline(at time.Time) error {
	if !at.IsZero() {
		c.limits++
	}
	return nil
}

// Silent connections, however many, do not keep a member out: neither one that is connected nor one that
// comes back. Only a few of them are kept at a time.
func TestStrangersDoNotKeepMembersOut(t *testing.T) {
	l := newLedger()
	tr := listening(t, l, func(o *Options) { o.HandshakeTimeout = maxWait })
	up := introduced(t, tr)
	var silent []wire
	for range 400 {
		silent = append(silent, dialed(t, tr))
	}
	up.write(frame(1, 10))
	next(t, l.got, "a message of the member that was up")
	back := introduced(t, tr)
	back.write(frame(2, 10))
	for next(t, l.got, "a message of the member that came back") != 2 {
	}
	silent[0].closed()
	tr.inbound.mu.Lock()
	defer tr.inbound.mu.Unlock()
	if n := len(tr.inbound.strangers); n > maxStrangersPerAddr {
		t.Errorf("%d strangers are kept, at most %d", n, maxStrangersPerAddr)
	}
}

// Which stranger makes space for another.
func TestCrowd(t *testing.T) {
	for _, row := range []struct {
		name   string
		have   string // one letter an address
		from   string
		most   int
		oldest int // index of the one that goes, -1 for none
	}{
		{"no stranger", "", "a", 3, -1},
		{"a free slot", "aa", "b", 3, -1},
		{"full: the address with the most pays", "abb", "c", 3, 1},
		{"full of equals: the oldest goes", "abc", "d", 3, 0},
		{"an address with its share pays itself", "baaaaaaaaaaaaaaaa", "a", 64, 1},
		{"another address does not pay for it", "baaaaaaaaaaaaaaaa", "c", 64, -1},
	} {
		var s inboundSet
		for _, c := range row.have {
			s.strangers = append(s.strangers, &inbound{addr: string(c)})
		}
		if i := slices.Index(s.strangers, s.crowded(row.from, row.most)); i != row.oldest {
			t.Errorf("%s: number %d goes, want %d", row.name, i, row.oldest)
		}
	}
}

// A peer whose deliveries hang may dial again and again: its connections stay few.
func TestConnectionsOfOnePeerAreFew(t *testing.T) {
	g := &gate{entered: make(chan uint64, 10), leave: make(chan uint64)}
	tr := listening(t, g, nil)
	defer close(g.leave)
	first := introduced(t, tr)
	first.write(frame(1, 10))
	next(t, g.entered, "first delivery")
	for range maxPerPeer - 1 {
		introduced(t, tr)
	}
	w := dialed(t, tr)
	w.write(helloOf(2, 1).append(nil))
	w.closed()
}

// gate holds every delivery until the test releases it.
type gate struct {
	guest
	entered, leave chan uint64
}

func (g *gate) Receive(_ uint64, batch []transport.Envelope) {
	g.entered <- batch[0].Message.Index
	<-g.leave
}
func (g *gate) Unreachable(uint64) {}

// A new connection of a peer replaces the old one, but delivers nothing before the old one's delivery has
// ended.
func TestNewConnectionReplacesOld(t *testing.T) {
	g := &gate{entered: make(chan uint64, 10), leave: make(chan uint64)}
	tr := listening(t, g, nil)
	defer close(g.leave)
	old := introduced(t, tr)
	old.write(frame(1, 10))
	if index := next(t, g.entered, "first delivery"); index != 1 {
		t.Fatalf("message %d, want 1", index)
	}
	middle := introduced(t, tr)
	middle.write(frame(2, 10))
	old.closed() // by the middle one: a welcome alone does not say that it has replaced the old one
	newest := introduced(t, tr)
	newest.write(frame(3, 10))
	middle.closed()
	if len(g.entered) != 0 {
		t.Fatal("a delivery began before the old connection's had ended")
	}
	g.leave <- 0
	// The connection in the middle was closed before its turn; what it delivers comes before the newest.
	for {
		index := next(t, g.entered, "delivery of the newest connection")
		g.leave <- 0
		if index == 3 {
			break
		}
		if index != 2 {
			t.Fatalf("message %d, want 2 or 3", index)
		}
	}
}

// A peer that does not read fills its queue and nothing more, and the loss is reported. When it reads again,
// what was accepted arrives in order.
func TestSlowReader(t *testing.T) {
	addr, conns := deaf(t)
	l := newLedger()
	const queueBytes = 1 << 20
	tr := listening(t, l, func(o *Options) { o.QueueBytes = queueBytes })
	tr.SetPeer(2, addr)
	c := next(t, conns, "connection")
	defer c.Close()
	for len(l.unreachable) > 0 { // of the address before
		<-l.unreachable
	}
	accepted := uint64(0)
	m := []raftpb.Message{{Type: raftpb.MsgApp, From: 1, To: 2, Entries: []raftpb.Entry{{Data: make([]byte, 10_000)}}}}
	for deadline := time.Now().Add(maxWait); tr.Send(2, 1, m); accepted++ {
		m[0].Index++
		if q := tr.Stats().QueuedBytes; q > queueBytes {
			t.Fatalf("%d bytes queued, at most %d", q, queueBytes)
		}
		if time.Now().After(deadline) {
			t.Fatal("the queue does not fill")
		}
	}
	if peer := next(t, l.unreachable, "report"); peer != 2 {
		t.Errorf("host %d reported, want 2", peer)
	}
	if s := tr.Stats(); s.DroppedFull != 1 {
		t.Errorf("%d messages dropped, want 1", s.DroppedFull)
	}
	_ = c.SetReadDeadline(time.Now().Add(maxWait))
	frames := newFrameReader(c, 64<<20, maxWait)
	for want := uint64(0); want < accepted; {
		body, err := frames.next()
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", want, accepted, err)
		}
		batch, err := transport.DecodeBody(body, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batch {
			if index := batch[i].Message.Index; index != want {
				t.Fatalf("message %d, want %d", index, want)
			}
			want++
		}
		if len(body) > transport.BatchBytes {
			t.Errorf("frame of %d bytes, at most %d", len(body), transport.BatchBytes)
		}
	}
}

// A peer that takes nothing for StallTimeout is given up and dialed again.
func TestStalledWrite(t *testing.T) {
	addr, conns := deaf(t)
	tr := listening(t, newLedger(), func(o *Options) { o.StallTimeout = 50 * time.Millisecond })
	tr.SetPeer(2, addr)
	first := next(t, conns, "connection")
	defer first.Close()
	m := []raftpb.Message{{Type: raftpb.MsgApp, From: 1, To: 2, Entries: []raftpb.Entry{{Data: make([]byte, 8<<20)}}}}
	tr.Send(2, 1, m)
	tr.Send(2, 1, m)
	second := next(t, conns, "second connection")
	second.Close()
}

// A link has one direction: a peer that sends on it is disconnected and dialed again. So is one that closes
// it.
func TestLinkEnds(t *testing.T) {
	addr, conns := deaf(t)
	tr := listening(t, newLedger(), nil)
	tr.SetPeer(2, addr)
	c := next(t, conns, "connection")
	_, _ = c.Write([]byte("?"))
	_ = c.SetReadDeadline(time.Now().Add(maxWait))
	if _, err := io.ReadAll(c); err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatal("the connection is not closed")
		}
	}
	c.Close()
	next(t, conns, "second connection").Close()
	next(t, conns, "third connection").Close()
}

// A peer that moves is found at its new address, even while the old one is being dialed or waited for.
func TestMove(t *testing.T) {
	tr := listening(t, newLedger(), func(o *Options) { o.BackoffMin, o.BackoffMax = time.Hour, time.Hour })
	for range 3 {
		addr, conns := deaf(t)
		tr.SetPeer(2, addr)
		defer next(t, conns, "connection").Close()
	}
}

func TestMessageTooLarge(t *testing.T) {
	l := newLedger()
	tr := listening(t, l, func(o *Options) { o.FrameBytes = 1000 })
	if tr.Send(2, 1, []raftpb.Message{{Entries: []raftpb.Entry{{Data: make([]byte, 1000)}}}}) {
		t.Error("a message larger than a frame was accepted")
	}
	next(t, l.unreachable, "report")
	if s := tr.Stats(); s.DroppedTooLarge != 1 {
		t.Errorf("%d messages dropped, want 1", s.DroppedTooLarge)
	}
}

// The log repeats a message about a peer once a second, with the number of lines left out. The same message
// about another peer appears at once.
func TestLimitedLog(t *testing.T) {
	var l limitedLog
	now := time.Unix(0, 0)
	for _, row := range []struct {
		after   time.Duration
		skipped int
		ok      bool
	}{{0, 0, true}, {1, 0, false}, {999, 0, false}, {1000, 2, true}, {1001, 0, false}, {5000, 1, true}} {
		skipped, ok := l.admit(topic{2, "x"}, now.Add(row.after*time.Millisecond))
		if skipped != row.skipped || ok != row.ok {
			t.Errorf("after %d ms: %d left out, written %v; want %d, %v", row.after, skipped, ok, row.skipped, row.ok)
		}
	}
	for _, other := range []topic{{3, "x"}, {2, "y"}} {
		if _, ok := l.admit(other, now); !ok {
			t.Errorf("%+v was left out, though it is said for the first time", other)
		}
	}
}

// FuzzHandshake: no bytes make the handshake panic or take more memory than allowed, and what is accepted
// encodes to the same bytes.
func FuzzHandshake(f *testing.F) {
	f.Add(helloOf(2, 1).append(nil))
	f.Add(hello{version: version + 1}.append(nil))
	f.Add(verdict{code: refused, why: "no\x1b[2J"}.append(nil))
	f.Add(verdict{host: transport.Introduction{ID: 2, Members: []transport.Member{{ID: 1, Addr: "a:1"}}}}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHello(bytes.NewReader(b)); err == nil && h.version == version {
			if again := h.append(nil); !bytes.Equal(again, b[:len(again)]) {
				t.Fatalf("hello %+v is not what came: %x", h, b)
			}
			_ = judge(h, 1, true, func(transport.Introduction) error { return nil })
		}
		if v, err := readVerdict(bytes.NewReader(b)); err == nil && v.code == welcome {
			if again := v.append(nil); !bytes.Equal(again, b[:len(again)]) {
				t.Fatalf("verdict %+v is not what came: %x", v, b)
			}
		} else if len(v.why) > 4*maxReasonBytes {
			t.Fatalf("a reason of %d bytes", len(v.why))
		}
	})
}

// refusing fails the test if the transport asks it to admit a host.
type refusing struct {
	*ledger
	t *testing.T
}

func (r refusing) Admit(transport.Introduction, string) error {
	r.t.Error("a transport that is closed asks whom to admit")
	return nil
}

// A peer that dials while this host closes gets no verdict. A refusal would make it blame its address book in
// its log, and an operator would look for a configuration error after each restart.
func TestHelloWhileClosing(t *testing.T) {
	tr := listening(t, refusing{newLedger(), t}, nil)
	tr.Close()
	here, there := net.Pipe()
	defer there.Close()
	go func() { _, _ = there.Write(helloOf(2, 1).append(nil)) }()
	said := make(chan []byte)
	go func() {
		text, _ := io.ReadAll(there)
		said <- text
	}()
	if _, err := tr.greet(&inbound{conn: here}); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the greeting ended with %v", err)
	}
	here.Close()
	if text := next(t, said, "the end of the connection"); len(text) > 0 {
		t.Errorf("the peer was told %q", text)
	}
}
