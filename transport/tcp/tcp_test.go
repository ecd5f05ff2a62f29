package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// What only sockets can do wrong. The contract of all transports is tested in conformance_test.go.

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBadFramesCostTheConnection(t *testing.T) {
	huge := make([]byte, transport.HeaderBytes)
	binary.LittleEndian.PutUint32(huge, transport.MaxFrameBodyBytes+1)
	flipped := frame(1, 100)
	flipped[40] ^= 1
	flippedLarge := frame(1, 200<<10)
	flippedLarge[100<<10] ^= 1
	garbage := transport.AppendFrames(nil, transport.Consensus, bytes.Repeat([]byte{0xff}, 30))
	tooLarge := frame(1, 2<<20)
	bulk := transport.AppendFrames(nil, transport.Bulk, []byte("bulk on the connection for consensus"))
	l := newLedger()
	tr := listening(t, l, func(o *Options) { o.FrameBytes = 1 << 20 })
	bad := [][]byte{huge, flipped, flippedLarge, garbage, tooLarge, bulk}
	for i, b := range bad {
		w := introduced(t, tr)
		w.write(append(frame(uint64(i), 10), b...))
		w.closed()
		if index := next(t, l.got, "the good frame before the bad"); index != uint64(i) {
			t.Errorf("message %d arrived, want %d", index, i)
		}
	}
	tr.Close()
	if s := tr.Stats(); s.BadFrames != uint64(len(bad)) || s.Kinds[transport.Consensus].Received != uint64(len(bad)) {
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
	if s := tr.Stats(); s.Kinds[transport.Consensus].Received != 1 || s.BadFrames != 0 {
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

// A peer that sends a byte now and then, fast enough for every single read, is not waited for: each frame has
// one time limit, which is set at most twice, for the head and for the rest with what is left of it.
func TestSlowTrickle(t *testing.T) {
	for _, size := range []int{1 << 10, 200 << 10} {
		c := &trickle{bytes: frame(1, size)}
		if _, err := newFrameReader(c, transport.ClassConsensus, 1<<20, time.Hour).next(); err != nil {
			t.Fatal(err)
		}
		if maxLimits := 2 * transport.FramesOf(size+100); c.limits > maxLimits {
			t.Errorf("a body of %d bytes had its time limit set %d times, at most %d: every byte buys time", size, c.limits, maxLimits)
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
	for range maxPerSender - 1 {
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
	m := []transport.Envelope{{Group: 1, Message: raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Entries: []raftpb.Entry{{Data: make([]byte, 10_000)}}}}}
	for deadline := time.Now().Add(maxWait); tr.Send(2, m); accepted++ {
		m[0].Message.Index++
		if q := tr.Stats().Kinds[transport.Consensus].QueuedBytes; q > queueBytes {
			t.Fatalf("%d bytes queued, at most %d", q, queueBytes)
		}
		if time.Now().After(deadline) {
			t.Fatal("the queue does not fill")
		}
	}
	if peer := next(t, l.unreachable, "report"); peer != 2 {
		t.Errorf("host %d reported, want 2", peer)
	}
	if s := tr.Stats().Kinds[transport.Consensus]; s.DroppedFull != 1 {
		t.Errorf("%d messages dropped, want 1", s.DroppedFull)
	}
	_ = c.SetReadDeadline(time.Now().Add(maxWait))
	frames := newFrameReader(c, transport.ClassConsensus, 64<<20, maxWait)
	for want := uint64(0); want < accepted; {
		body, err := frames.next()
		if err != nil {
			t.Fatalf("after %d of %d messages: %v", want, accepted, err)
		}
		batch, err := body.Messages(nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batch {
			if index := batch[i].Message.Index; index != want {
				t.Fatalf("message %d, want %d", index, want)
			}
			want++
		}
		if len(body.Bytes) > transport.FrameBodyBytes {
			t.Errorf("messages of 10,000 bytes share a body of %d, at most %d", len(body.Bytes), transport.FrameBodyBytes)
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
	m := []transport.Envelope{{Group: 1, Message: raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Entries: []raftpb.Entry{{Data: make([]byte, 8<<20)}}}}}
	tr.Send(2, m)
	tr.Send(2, m)
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

// When a peer is not where it was, its other address is tried, and then the first one again.
func TestOtherAddress(t *testing.T) {
	tr := listening(t, newLedger(), func(o *Options) { o.BackoffMin, o.BackoffMax = time.Millisecond, time.Millisecond })
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan net.Conn, 100)
	go func() {
		for {
			c, err := gone.Accept()
			if err != nil {
				return
			}
			c.Close()
			refused <- c
		}
	}()
	defer gone.Close()
	other, others := deaf(t)
	tr.SetPeer(2, gone.Addr().String())
	next(t, refused, "attempt")
	next(t, refused, "second attempt, as there is no other address")
	tr.SetOtherAddr(2, other)
	defer next(t, others, "connection to the other address").Close()
}

// What finds a peer is asked at each attempt, and may take no longer than an attempt. One that panics, or
// ends its goroutine, costs an attempt.
func TestResolve(t *testing.T) {
	first, conns := deaf(t)
	second, later := deaf(t)
	var asked atomic.Int32
	listening(t, newLedger(), func(o *Options) {
		o.DialTimeout = 50 * time.Millisecond
		o.Resolve = func(ctx context.Context, peer uint64, addr string) (string, error) {
			if peer != 2 || addr != "127.0.0.1:1" {
				t.Errorf("asked for host %d at %s", peer, addr)
			}
			switch asked.Add(1) {
			case 1:
				return "", errors.New("the registry is down")
			case 2:
				<-ctx.Done() // it hangs
				return "", ctx.Err()
			case 3:
				panic("the registry is broken")
			case 4:
				runtime.Goexit()
				return "", nil
			case 5:
				return first, nil
			default:
				return second, nil
			}
		}
	})
	next(t, conns, "connection to where the host is found").Close()
	next(t, later, "connection to where it is found afterwards").Close()
}

// A message that is larger than the queue goes when no other one like it waits, and it takes no other message
// of its batch with it. So an entry that was legal under larger settings reaches a peer.
func TestMessageLargerThanTheQueue(t *testing.T) {
	addr, conns := deaf(t)
	l := newLedger()
	const queueBytes = 64 << 10
	tr := listening(t, l, func(o *Options) { o.QueueBytes = queueBytes })
	tr.SetPeer(2, addr)
	c := next(t, conns, "connection")
	defer c.Close()
	for len(l.unreachable) > 0 { // of the address before
		<-l.unreachable
	}
	var batch []transport.Envelope
	for i, bytes := range []int{1, 24 << 20, 23 << 20, 1} {
		batch = append(batch, transport.Envelope{Group: uint64(i), Message: raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Index: uint64(i), Entries: []raftpb.Entry{{Data: make([]byte, bytes)}}}})
	}
	if tr.Send(2, batch) {
		t.Error("the second of two messages that are larger than the queue was accepted")
	}
	if peer := next(t, l.unreachable, "report"); peer != 2 {
		t.Errorf("host %d reported, want 2", peer)
	}
	if s := tr.Stats().Kinds[transport.Consensus]; s.DroppedFull != 2 || s.DroppedTooLarge != 0 {
		t.Errorf("%d messages were dropped by a full queue and %d as too large, want 2 and 0", s.DroppedFull, s.DroppedTooLarge)
	}
	_ = c.SetReadDeadline(time.Now().Add(maxWait))
	frames := newFrameReader(c, transport.ClassConsensus, 64<<20, maxWait)
	for want := uint64(0); want < 2; {
		body, err := frames.next()
		if err != nil {
			t.Fatalf("message %d: %v", want, err)
		}
		arrived, err := body.Messages(nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range arrived {
			if e.Message.Index != want || len(e.Message.Entries[0].Data) != len(batch[want].Message.Entries[0].Data) {
				t.Fatalf("message %d with %d bytes, want %d", e.Message.Index, len(e.Message.Entries[0].Data), want)
			}
			want++
		}
	}
}

func TestMessageTooLarge(t *testing.T) {
	l := newLedger()
	tr := listening(t, l, func(o *Options) { o.FrameBytes = 1000 })
	if tr.Send(2, appendOf(1000)) {
		t.Error("a message larger than a frame was accepted")
	}
	next(t, l.unreachable, "report")
	if s := tr.Stats().Kinds[transport.Consensus]; s.DroppedTooLarge != 1 {
		t.Errorf("%d messages dropped, want 1", s.DroppedTooLarge)
	}
}
