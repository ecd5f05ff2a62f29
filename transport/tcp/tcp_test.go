package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// What only sockets can do wrong. The contract that all transports share is tested in transport/conformance_test.go.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestHandshakeRefusals(t *testing.T) {
	tr := listening(t, newLedger(), nil)
	rows := []struct {
		name string
		h    hello
		want verdict
	}{
		{"later version", hello{version + 1, 7, 2, 1}, otherVersion},
		{"other cluster", hello{version, 8, 2, 1}, otherCluster},
		{"meant for another host", hello{version, 7, 2, 3}, otherHost},
		{"unknown sender", hello{version, 7, 3, 1}, unknownSender},
		{"our own id", hello{version, 7, 1, 1}, sameHost},
	}
	for _, row := range rows {
		w := dialed(t, tr)
		w.write(row.h.append(nil))
		if v, err := readVerdict(w); err != nil || v != row.want {
			t.Errorf("%s: verdict %q, error %v, want %q", row.name, v, err, row.want)
		}
		w.closed()
	}
	w := dialed(t, tr)
	w.write(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 3)[:helloBytes])
	w.closed()
	tr.Close()
	if s := tr.Stats(); s.Refusals != uint64(len(rows)+1) || s.MessagesReceived != 0 {
		t.Errorf("stats %+v, want %d refusals", s, len(rows)+1)
	}
}

// A peer of another cluster is named in the log of the one who dials; it is not spoken to.
func TestDialerIsRefused(t *testing.T) {
	other := listening(t, newLedger(), func(o *Options) { o.ID, o.Cluster = 2, 8 })
	lines := make(chan string, 1000)
	l := newLedger()
	tr := listening(t, l, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(lineWriter(lines), nil)) })
	tr.SetPeer(2, other.Addr())
	for {
		if line := next(t, lines, "log line"); bytes.Contains([]byte(line), []byte(otherCluster.String())) {
			break
		}
	}
	if peer := next(t, l.unreachable, "report"); peer != 2 {
		t.Errorf("host %d reported, want 2", peer)
	}
}

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

// Frames that are cut at every kind of place, and sent byte by byte, arrive whole or not at all.
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

// Who says nothing, or stops in the middle of something, is not waited for.
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

func TestInboundCap(t *testing.T) {
	tr := listening(t, newLedger(), func(o *Options) { o.MaxInbound = 1 })
	introduced(t, tr)
	w := dialed(t, tr)
	w.closed()
	if s := tr.Stats(); s.Refusals != 1 {
		t.Errorf("%d refusals, want 1", s.Refusals)
	}
}

// gate holds every delivery until the test lets it through.
type gate struct{ entered, leave chan uint64 }

func (g *gate) Receive(_ uint64, batch []transport.Envelope) {
	g.entered <- batch[0].Message.Index
	<-g.leave
}
func (g *gate) Unreachable(uint64) {}

// A new connection of a peer replaces the old, but delivers nothing before the old one's delivery is over.
func TestNewConnectionReplacesOld(t *testing.T) {
	g := &gate{make(chan uint64, 10), make(chan uint64)}
	tr := listening(t, g, nil)
	old := introduced(t, tr)
	old.write(frame(1, 10))
	if index := next(t, g.entered, "first delivery"); index != 1 {
		t.Fatalf("message %d, want 1", index)
	}
	middle := introduced(t, tr)
	middle.write(frame(2, 10))
	newest := introduced(t, tr)
	newest.write(frame(3, 10))
	old.closed()
	middle.closed()
	if len(g.entered) != 0 {
		t.Fatal("a delivery began before the old connection's had ended")
	}
	g.leave <- 0
	// The connection in the middle was closed before its turn; whatever of it is delivered comes before the newest.
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

// A peer that does not read fills its queue and no more; the loss is reported; when it reads again, what was accepted
// arrives in order.
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
	for deadline := time.Now().Add(patience); tr.Send(2, 1, m); accepted++ {
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
	_ = c.SetReadDeadline(time.Now().Add(patience))
	frames := newFrameReader(c, 64<<20, patience)
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

// A peer that takes nothing for StallTimeout is given up, and dialed again.
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

// A link is for one direction; a peer that talks on it is cut off and dialed again. So is one that hangs up.
func TestLinkEnds(t *testing.T) {
	addr, conns := deaf(t)
	tr := listening(t, newLedger(), nil)
	tr.SetPeer(2, addr)
	c := next(t, conns, "connection")
	_, _ = c.Write([]byte("?"))
	_ = c.SetReadDeadline(time.Now().Add(patience))
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

// A peer that moves is found at its new address, also while the old one is being dialed or waited for.
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

// The log says a thing once a second, and how often it did not.
func TestLimitedLog(t *testing.T) {
	var l limitedLog
	now := time.Unix(0, 0)
	for _, row := range []struct {
		after   time.Duration
		skipped int
		ok      bool
	}{{0, 0, true}, {1, 0, false}, {999, 0, false}, {1000, 2, true}, {1001, 0, false}, {5000, 1, true}} {
		skipped, ok := l.admit("x", now.Add(row.after*time.Millisecond))
		if skipped != row.skipped || ok != row.ok {
			t.Errorf("after %d ms: %d left out, written %v; want %d, %v", row.after, skipped, ok, row.skipped, row.ok)
		}
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add(hello{version, 7, 2, 1}.append(nil))
	f.Add(hello{version + 1, 0, 0, 0}.append(nil))
	f.Add(otherHost.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := readHello(bytes.NewReader(b)); err == nil {
			if !bytes.Equal(h.append(nil), b[:helloBytes]) {
				t.Fatalf("hello %+v is not what came: %x", h, b)
			}
			_ = judge(h, 7, 1, func(uint64) bool { return true }).String()
		}
		if v, err := readVerdict(bytes.NewReader(b)); err == nil && !bytes.Equal(v.append(nil), b[:verdictBytes]) {
			t.Fatalf("verdict %v is not what came: %x", v, b)
		}
	})
}
