package tcp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/transport"
)

// Connections of each class: when they are made and closed, which version they speak, and what a peer that
// does not keep to the frames costs.

// talking returns hosts 1 and 2, of which 1 knows where 2 listens.
func talking(t *testing.T, change func(*Options)) (one, two *Transport, in *kinds) {
	t.Helper()
	in = newKinds()
	two = listening(t, in, func(o *Options) {
		o.ID = 2
		if change != nil {
			change(o)
		}
	})
	two.SetPeer(1, "127.0.0.1:1")
	one = listening(t, newKinds(), change)
	one.SetPeer(2, two.Addr())
	return one, two, in
}

// A host dials for control and bulk when there is something to send, and closes the connection when there has
// been nothing for IdleTimeout. What is sent later arrives over another one. The connection for consensus and
// pulses stays.
func TestIdleClassesAreClosed(t *testing.T) {
	one, two, in := talking(t, func(o *Options) { o.IdleTimeout = 5 * time.Millisecond })
	eventually(t, "a connection for consensus", func() bool { return one.Stats().PeersUp == 1 })
	if p := one.peer(2); p.lines[transport.ClassControl].link != nil || p.lines[transport.ClassBulk].link != nil {
		t.Error("a connection was made before there was anything to send")
	}
	link := one.peer(2).lines[transport.ClassConsensus].link
	want := int64(0)
	for round, size := range []int{100_000, 10, 10} { // a small body is written by its sender
		for _, kind := range []transport.Kind{transport.Control, transport.Bulk} {
			if !one.SendBytes(2, kind, make([]byte, size)) {
				t.Fatalf("%v was refused", kind)
			}
			want += int64(size)
			eventually(t, kind.String(), func() bool { return in.bulk.Load() == want })
		}
		eventually(t, "both are closed", func() bool { return one.Stats().IdleCloses == uint64(2*round+2) })
	}
	if s := one.Stats(); s.PeersUp != 1 || s.Dials < 7 {
		t.Errorf("%d dials and %d peers up, want at least 7, and one", s.Dials, s.PeersUp)
	}
	if one.peer(2).lines[transport.ClassConsensus].link != link {
		t.Error("the connection for consensus was replaced")
	}
	if s := two.Stats(); s.BadFrames != 0 || s.Refusals != 0 {
		t.Errorf("%d bad frames, %d refusals, want none", s.BadFrames, s.Refusals)
	}
}

// A peer on demand is dialed only for what is sent to it, until SetPeer names it again.
func TestDialOnDemand(t *testing.T) {
	one, two, in := talking(t, func(o *Options) { o.BackoffMin, o.BackoffMax = time.Millisecond, time.Millisecond })
	eventually(t, "a connection for consensus", func() bool { return one.Stats().PeersUp == 1 })
	dials := one.Stats().Dials
	one.DialOnDemand(2)
	eventually(t, "its end", func() bool { return one.Stats().PeersUp == 0 })
	for sent := int64(10); sent <= 30; sent += 10 {
		if !one.SendBytes(2, transport.Control, make([]byte, 10)) {
			t.Fatal("a body was refused")
		}
		eventually(t, "the body", func() bool { return in.bulk.Load() == sent })
	}
	if s := one.Stats(); s.PeersUp != 0 || s.Dials != dials+1 {
		t.Errorf("%d peers up after %d dials, want none after %d", s.PeersUp, s.Dials, dials+1)
	}
	one.SetPeer(2, two.Addr())
	eventually(t, "a connection for consensus again", func() bool { return one.Stats().PeersUp == 1 })
}

// The counts of each kind, at both ends.
func TestStatsOfKinds(t *testing.T) {
	one, two, in := talking(t, nil)
	// Until the first message has arrived, what is queued may be lost with an attempt to connect.
	eventually(t, "a connection", func() bool { return one.Stats().PeersUp == 1 })
	body := make([]byte, 100_000) // two frames
	binary.LittleEndian.PutUint64(body, 5)
	one.Send(2, appendOf(100_000))
	next(t, in.index, "a message")
	one.SendBytes(2, transport.Pulse, body)
	next(t, in.pulse, "a pulse")
	one.SendBytes(2, transport.Control, body)
	one.SendBytes(2, transport.Bulk, body)
	eventually(t, "bodies", func() bool { return in.bulk.Load() == 200_000 })
	for kind := range transport.Kind(transport.Kinds) {
		eventually(t, "counts", func() bool { return one.Stats().Kinds[kind].Sent == 1 })
		sent, received := one.Stats().Kinds[kind], two.Stats().Kinds[kind]
		sent.Received, sent.FramesReceived, sent.BytesReceived = received.Received, received.FramesReceived, received.BytesReceived
		bytes := uint64(100_000 + 2*transport.HeaderBytes)
		if kind == transport.Consensus {
			e := appendOf(100_000)[0]
			bytes = uint64(transport.MessageBytes(1, &e.Message) + 2*transport.HeaderBytes)
		}
		want := transport.KindStats{Sent: 1, FramesSent: 2, BytesSent: bytes, Received: 1, FramesReceived: 2, BytesReceived: bytes}
		if sent != want {
			t.Errorf("%v: have %+v, want %+v", kind, sent, want)
		}
	}
}

// A peer that begins an append, sends pulses and never the rest is silent: its connection ends. Each pulse is
// delivered, and buys no time.
func TestPulsesBuyNoTimeForAnAppend(t *testing.T) {
	for _, pulseBytes := range []int{10, 200_000} {
		in := newKinds()
		tr := listening(t, in, func(o *Options) { o.StallTimeout = 50 * time.Millisecond })
		w := introduced(t, tr)
		w.write(frame(1, 300<<10)[:transport.HeaderBytes+transport.FrameBodyBytes])
		pulse := transport.AppendFrames(nil, transport.Pulse, make([]byte, pulseBytes))
		ended := make(chan error, 1)
		go func() {
			for {
				if _, err := w.Write(pulse); err != nil {
					ended <- err
					return
				}
				<-time.After(time.Millisecond)
			}
		}()
		var timeout net.Error
		if err := next(t, ended, "the end of a connection that sends pulses only"); errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("pulses of %d bytes: the connection does not end: %v", pulseBytes, err)
		}
		if len(in.index) > 0 {
			t.Error("half an append was delivered")
		}
	}
}

// slowReceiver takes long for each pulse.
type slowReceiver struct{ *kinds }

func (s slowReceiver) Deliver(from uint64, kind transport.Kind, body []byte) {
	<-time.After(60 * time.Millisecond)
	s.kinds.Deliver(from, kind, body)
}

// The time in which a receiver works is not the peer's: an append whose rest has arrived meanwhile is
// delivered.
func TestSlowReceiverIsNotTheSendersFault(t *testing.T) {
	in := slowReceiver{newKinds()}
	tr := listening(t, in, func(o *Options) { o.StallTimeout = 50 * time.Millisecond })
	w := introduced(t, tr)
	whole := frame(1, 300<<10)
	at := transport.HeaderBytes + transport.FrameBodyBytes
	pulse := transport.AppendFrames(nil, transport.Pulse, make([]byte, 8))
	w.write(bytes.Join([][]byte{whole[:at], pulse, pulse, whole[at:]}, nil))
	if have := next(t, in.index, "an append behind two slow pulses"); have != 1 {
		t.Errorf("message %d, want 1", have)
	}
}

// Each end says which versions it speaks. The highest common one is used; no common one is refused.
func TestVersionNegotiation(t *testing.T) {
	for _, row := range []struct {
		here, there versionRange
		want        uint32 // 0: refused
	}{
		{versionRange{3, 3}, versionRange{3, 3}, 3},
		{versionRange{3, 5}, versionRange{3, 3}, 3},
		{versionRange{3, 3}, versionRange{3, 5}, 3},
		{versionRange{3, 5}, versionRange{4, 9}, 5},
		{versionRange{4, 9}, versionRange{3, 5}, 5},
		{versionRange{3, 3}, versionRange{4, 5}, 0},
		{versionRange{4, 5}, versionRange{3, 3}, 0},
		{versionRange{3, 3}, versionRange{2, 2}, 0},
		{versionRange{3, 3}, versionRange{4, 2}, 0}, // an empty range
		{versionRange{3, 3}, versionRange{0, 1<<32 - 1}, 3},
	} {
		h := helloOf(2, 1)
		h.versions = row.there
		read, err := readHello(bytes.NewReader(h.append(nil)), row.here)
		if err != nil {
			t.Fatal(err)
		}
		v := judge(read, row.here, 1, true, func(transport.Introduction) error { return nil })
		if v.version != row.want || (v.code == welcome) != (row.want != 0) {
			t.Errorf("%v meets %v: verdict %d, version %d, want %d", row.here, row.there, v.code, v.version, row.want)
		}
		answer, err := readVerdict(bytes.NewReader(v.append(nil)))
		if err != nil || answer.code != v.code || answer.version != v.version || answer.why != v.why {
			t.Errorf("%+v became %+v, error %v", v, answer, err)
		}
	}
}

// Hosts that have no version in common say so in both logs, with the versions.
func TestNoCommonVersion(t *testing.T) {
	here, there := make(chan string, 1000), make(chan string, 1000)
	logTo := func(lines chan string) *slog.Logger { return slog.New(slog.NewTextHandler(lineWriter(lines), nil)) }
	two, err := Listen(Options{ID: 2, Logger: logTo(there)})
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	two.versions = versionRange{5, 6}
	two.SetPeer(1, "127.0.0.1:1")
	two.Start(newLedger())
	one := listening(t, newLedger(), func(o *Options) { o.Logger = logTo(here) })
	one.SetPeer(2, two.Addr())
	const sentence = "the dialing host speaks versions 3 to 4 of the transport protocol, host 2 speaks versions 5 to 6, and they have none in common"
	for _, lines := range []chan string{here, there} {
		for line := next(t, lines, "a line"); !strings.Contains(line, sentence); {
			line = next(t, lines, "a line with the sentence")
		}
	}
	if s := two.Stats(); s.Kinds[transport.Consensus].Received > 0 || s.Refusals == 0 {
		t.Errorf("%d refusals, %d messages received", s.Refusals, s.Kinds[transport.Consensus].Received)
	}
}

// A program of version 2 is refused with a verdict that it can read, and its own verdict is understood.
func TestVersionTwo(t *testing.T) {
	tr := listening(t, newLedger(), nil)
	w := dialed(t, tr)
	old := binary.LittleEndian.AppendUint32([]byte(magic), 2) // version
	old = binary.LittleEndian.AppendUint64(old, 1)            // to
	old = binary.LittleEndian.AppendUint32(old, 60)           // length
	w.write(append(old, make([]byte, 64)...))
	head := make([]byte, 16)
	if _, err := io.ReadFull(w, head); err != nil || string(head[:8]) != magic || binary.LittleEndian.Uint32(head[8:]) != uint32(otherVersion) {
		t.Errorf("the verdict begins with %q, error %v", head, err)
	}
	why := "the hosts speak different versions of the transport protocol: 3 there, 2 here"
	answer := binary.LittleEndian.AppendUint32([]byte(magic), uint32(otherVersion))
	answer = appendBody(answer, 0, []byte(why))
	if v, err := readVerdict(bytes.NewReader(answer)); err != nil || v.code != otherVersion || !strings.Contains(v.why, "different versions") {
		t.Errorf("verdict %+v, error %v", v, err)
	}
}

// A host that answers with a version that this one does not speak is refused by this one.
func TestWelcomeInAVersionThatIsNotSpoken(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = readHello(c, spoken)
			_, _ = c.Write(verdict{version: 9, host: transport.Introduction{ID: 2}}.append(nil))
			c.Close()
		}
	}()
	lines := make(chan string, 1000)
	one := listening(t, newLedger(), func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(lineWriter(lines), nil))
	})
	one.SetPeer(2, listener.Addr().String())
	for !strings.Contains(next(t, lines, "a line"), "host 2 chose version 9 of the transport protocol, and this host speaks versions 3 to 4") {
	}
}

// Each class of a peer has connections of its own: a new one replaces only its own kind.
func TestClassesDoNotReplaceEachOther(t *testing.T) {
	in := newKinds()
	tr := listening(t, in, nil)
	var wires [transport.Classes]wire
	// Consensus twice: a new connection closes the old one of its class.
	for _, class := range []transport.Class{transport.ClassConsensus, transport.ClassBulk, transport.ClassControl, transport.ClassConsensus} {
		w := dialed(t, tr)
		h := helloOf(2, 1)
		h.class = class
		w.write(h.append(nil))
		if v, err := readVerdict(w); err != nil || v.code != welcome || v.version != spoken.highest {
			t.Fatalf("class %v: verdict %+v, error %v", class, v, err)
		}
		wires[class] = w
	}
	wires[transport.ClassBulk].write(transport.AppendFrames(nil, transport.Bulk, make([]byte, 1)))
	wires[transport.ClassControl].write(transport.AppendFrames(nil, transport.Control, make([]byte, 10)))
	wires[transport.ClassConsensus].write(frame(7, 10))
	next(t, in.index, "a message")
	eventually(t, "bodies", func() bool { return in.bulk.Load() == 11 })
	tr.RemovePeer(2)
	for _, w := range wires {
		w.closed()
	}
}

// A receiver of bulk that is slow, for longer than StallTimeout, keeps its connection, and everything
// arrives.
func TestBulkMayBeSlow(t *testing.T) {
	in := newKinds()
	two, err := Listen(Options{ID: 2, StallTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	two.SetPeer(1, "127.0.0.1:1")
	var held atomic.Bool
	two.Start(&slowBulk{kinds: in, held: &held})
	one := listening(t, newKinds(), func(o *Options) { o.StallTimeout = 20 * time.Millisecond })
	one.SetPeer(2, two.Addr())
	body := make([]byte, 1<<20)
	const bodies = 24 // more than the kernel holds
	sent := 0
	eventually(t, "room for bulk", func() bool {
		for sent < bodies && one.SendBytes(2, transport.Bulk, body) {
			sent++
		}
		return sent == bodies
	})
	eventually(t, "all of bulk", func() bool { return in.bulk.Load() == bodies<<20 })
	if !held.Load() {
		t.Error("the receiver was not slow")
	}
}

// slowBulk takes long for its first body of bulk.
type slowBulk struct {
	*kinds
	held *atomic.Bool
}

func (s *slowBulk) Deliver(from uint64, kind transport.Kind, body []byte) {
	if kind == transport.Bulk && !s.held.Swap(true) {
		<-time.After(400 * time.Millisecond)
	}
	s.kinds.Deliver(from, kind, body)
}

// Options that make no sense are refused with a sentence.
func TestBadOptions(t *testing.T) {
	for _, o := range []Options{
		{}, {ID: 1, QueueBytes: -1}, {ID: 1, ControlBytes: -1}, {ID: 1, BulkBytes: -5}, {ID: 1, FrameBytes: math.MaxInt}, {ID: 1, MaxStrangers: -1},
	} {
		tr, err := Listen(o)
		if err == nil {
			tr.Close()
			t.Errorf("%s is accepted", fmt.Sprintf("%+v", o))
		}
	}
}
