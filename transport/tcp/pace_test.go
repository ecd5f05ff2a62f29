package tcp

import (
	"bytes"
	"math"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace/internal/crcjoin"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// A frame is what the link carries in two milliseconds, from 64 KiB to 1 MiB.
func TestSizeAt(t *testing.T) {
	const mbit = 1e6 / 8
	for _, row := range []struct {
		bytesPerSecond float64
		want           int
	}{
		{0, 64 << 10}, {10 * mbit, 64 << 10}, {300 * mbit, 64 << 10}, {1000 * mbit, 192 << 10}, {2500 * mbit, 576 << 10},
		{10_000 * mbit, 1 << 20}, {math.MaxInt64, 1 << 20},
	} {
		const n = 1 << 20
		in := time.Duration(math.MaxInt64)
		if row.bytesPerSecond > 0 {
			in = time.Duration(n / row.bytesPerSecond * 1e9)
		}
		if have := sizeAt(n, in); have != row.want {
			t.Errorf("at %.0f bytes a second: %d, want %d", row.bytesPerSecond, have, row.want)
		}
	}
}

// What the kernel takes at once says nothing of a link: a burst of less than twice as much changes nothing.
// So do small frames, and every burst to a receiver that takes no large frames.
func TestPaceNeedsALongBurst(t *testing.T) {
	write := func(p *pace, sizes ...int) int {
		p.begin()
		for _, n := range sizes {
			p.writes(n)
			p.wrote(n)
		}
		return p.frameBytes()
	}
	const full = transport.HeaderBytes + transport.FrameBodyBytes
	fast := &pace{now: time.Now}
	for range 3 {
		if n := write(fast, full, full, full); n != transport.FrameBodyBytes {
			t.Errorf("behind 192 KiB frames have %d bytes", n)
		}
	}
	if n := write(fast, 100, full, full, 1000, full, full); n <= 4*transport.FrameBodyBytes {
		t.Errorf("behind 256 KiB at once frames have %d bytes", n)
	}
	slow := &pace{now: time.Now, size: transport.MaxFrameBodyBytes}
	slow.begin()
	slow.writes(full)
	slow.began = slow.began.Add(-time.Hour)
	slow.wrote(transport.MaxFrameBodyBytes)
	if n := slow.frameBytes(); n != transport.FrameBodyBytes {
		t.Errorf("behind a slow frame of 1 MiB frames have %d bytes", n)
	}
	if n := write(&pace{now: time.Now, isFixed: true}, full, full, full, full, full); n != transport.FrameBodyBytes {
		t.Errorf("to a receiver of version 3 frames have %d bytes", n)
	}
}

// A link that becomes slow within a burst, however long, has one large frame after that.
func TestPaceOfABurstWithoutEnd(t *testing.T) {
	var now time.Time
	p := &pace{now: func() time.Time { return now }}
	frame := func(bytesPerSecond int64) {
		n := transport.HeaderBytes + p.frameBytes()
		p.writes(n)
		now = now.Add(time.Duration(n) * time.Second / time.Duration(bytesPerSecond))
		p.wrote(n)
	}
	now = now.Add(time.Second) // not zero
	p.begin()
	for range 10_000 {
		frame(2 << 30)
	}
	if n := p.frameBytes(); n != transport.MaxFrameBodyBytes {
		t.Errorf("at 2 GiB a second frames have %d bytes", n)
	}
	if frame(10e6 / 8); p.frameBytes() != transport.FrameBodyBytes {
		t.Errorf("behind a frame at 10 Mbit/s frames have %d bytes", p.frameBytes())
	}
	for range 1000 {
		frame(2 << 30)
	}
	if n := p.frameBytes(); n != transport.MaxFrameBodyBytes {
		t.Errorf("at 2 GiB a second again frames have %d bytes", n)
	}
}

// TestLargeFramesNeedTheirVersion: a peer gets frames of more than 64 KiB if it speaks version 4, and not if
// it speaks version 3 alone.
func TestLargeFramesNeedTheirVersion(t *testing.T) {
	for version, large := range map[uint32]bool{3: false, 4: true} {
		addr, conns := deafOf(t, version)
		tr := listening(t, newLedger(), nil)
		tr.SetPeer(2, addr)
		c := next(t, conns, "connection")
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(maxWait))
		frames := newFrameReader(c, transport.ClassConsensus, 64<<20, maxWait)
		largest := 0
		for index := uint64(1); index < 1000 && (!large || largest <= transport.FrameBodyBytes); index++ {
			if !large && index > 20 {
				break
			}
			m := raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Index: index, Entries: []raftpb.Entry{{Data: make([]byte, 2<<20)}}}
			if !tr.Send(2, []transport.Envelope{{Group: 1, Message: m}}) {
				t.Fatal("a send was refused")
			}
			for {
				h, part, err := frames.frame()
				if err != nil {
					t.Fatal(err)
				}
				largest = max(largest, len(part))
				if !h.Continued {
					break
				}
			}
		}
		if (largest > transport.FrameBodyBytes) != large {
			t.Errorf("version %d: the largest frame has %d bytes", version, largest)
		}
		if v := tr.Stats().Kinds[transport.Consensus]; v.FramesSent == 0 {
			t.Errorf("version %d: stats %+v", version, v)
		}
	}
}

// stalled is a connection whose socket takes nothing at once. It counts the time limits of writes.
type stalled struct {
	net.Conn
	limits  int
	longest time.Duration
	wrote   []byte
}

func (s *stalled) Write(b []byte) (int, error) {
	s.wrote = append(s.wrote, b...)
	return len(b), nil
}

func (s *stalled) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() {
		s.limits++
		s.longest = max(s.longest, time.Until(at))
	}
	return nil
}

// full is a socket that takes nothing.
type full struct{ syscall.RawConn }

func (full) Write(func(uintptr) bool) error { return nil }

// A receiver may stop for one stall time, wherever in a frame. A frame has one for every 64 KiB of its body.
// Its header, and what TLS adds, have none.
func TestStallTimeOfAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, row := range []struct{ bytes, want int }{
			{1, 1},
			{transport.HeaderBytes + transport.FrameBodyBytes, 1},
			{transport.HeaderBytes + transport.FrameBodyBytes + 5*22, 1},
			{transport.HeaderBytes + 2*transport.FrameBodyBytes, 2},
			{transport.HeaderBytes + transport.MaxFrameBodyBytes, 16},
			{transport.HeaderBytes + transport.MaxFrameBodyBytes + 65*22, 16},
		} {
			c := &stalled{}
			l := &link{conn: c, raw: full{}}
			frame := bytes.Repeat([]byte("a frame"), row.bytes)[:row.bytes]
			if err := l.writeAll([][]byte{frame[:row.bytes/3], frame[row.bytes/3:]}, time.Second); err != nil {
				t.Fatal(err)
			}
			if c.limits != row.want || c.longest != time.Second || !bytes.Equal(c.wrote, frame) {
				t.Errorf("%d bytes have %d time limits of %v at most, want %d of a second; %d are written", row.bytes, c.limits, c.longest, row.want, len(c.wrote))
			}
		}
	})
}

// arrivals is a receiver that keeps what comes, in order.
type arrivals struct {
	guest
	messages chan raftpb.Message
	pulses   chan string
}

func (a *arrivals) Receive(_ uint64, batch []transport.Envelope) {
	for _, e := range batch {
		a.messages <- e.Message
	}
}

func (a *arrivals) Deliver(_ uint64, _ transport.Kind, body []byte) { a.pulses <- string(body) }

func (a *arrivals) Unreachable(uint64) {}

// TestLargeFramesArrive: what is sent in large frames arrives as it was, in plain TCP and in TLS, with pulses
// between the frames and small messages between large ones. The sums of entries arrive with them.
func TestLargeFramesArrive(t *testing.T) {
	authority := newAuthority(t, "ours")
	for _, row := range []struct {
		name     string
		one, two *TLS
	}{{"plain", nil, nil}, {"TLS", authority.member(1), authority.member(2)}} {
		in := &arrivals{messages: make(chan raftpb.Message, 100), pulses: make(chan string, 1000)}
		one, two := hostWith(t, 1, row.one), hostWith(t, 2, row.two)
		one.now = func() time.Time { return time.Unix(1, 0) } // a link without a limit
		one.SetPeer(2, two.Addr())
		two.SetPeer(1, one.Addr())
		one.Start(one)
		two.Start(in)
		const messages = 60
		rng := rand.New(rand.NewPCG(1, 1))
		var sent []raftpb.Message
		for index := range uint64(messages) {
			m := raftpb.Message{Type: raftpb.MsgApp, From: 1, To: 2, Index: index + 1}
			for range rng.IntN(5) {
				data := make([]byte, []int{10, 5000, transport.FrameBodyBytes, 1<<20 + 3, 2 << 20}[rng.IntN(5)])
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				e := raftpb.Entry{Term: 1, Index: index, Data: data}
				if rng.IntN(2) == 0 {
					e.Sum = crcjoin.Sum(data)
				}
				m.Entries = append(m.Entries, e)
			}
			sent = append(sent, m)
		}
		eventually(t, "a connection", func() bool { return one.Send(2, heartbeat(1, 2, 1000)) && len(in.messages) > 0 })
		for next(t, in.messages, "a heartbeat"); len(in.messages) > 0; {
			<-in.messages
		}
		go func() {
			for i := range sent {
				one.Send(2, []transport.Envelope{{Group: 1, Message: sent[i]}})
				one.SendBytes(2, transport.Pulse, []byte("a pulse"))
			}
		}()
		for i := 0; i < messages; {
			m := next(t, in.messages, "a message")
			if m.Type == raftpb.MsgHeartbeat {
				continue
			}
			if m.Index != sent[i].Index || len(m.Entries) != len(sent[i].Entries) {
				t.Fatalf("%s: message %d with %d entries, want %d with %d", row.name, m.Index, len(m.Entries), sent[i].Index, len(sent[i].Entries))
			}
			for k, e := range m.Entries {
				if want := sent[i].Entries[k].Data; !bytes.Equal(e.Data, want) || e.Sum != crcjoin.Sum(want) {
					t.Errorf("%s: entry %d of message %d has %d bytes with sum %08x, want %d with %08x", row.name, k, m.Index, len(e.Data), e.Sum, len(want), crcjoin.Sum(want))
				}
			}
			i++
		}
		if p := next(t, in.pulses, "a pulse"); p != "a pulse" {
			t.Errorf("%s: pulse %q", row.name, p)
		}
		k, have := one.Stats().Kinds[transport.Consensus], two.Stats().Kinds[transport.Consensus]
		if mean := k.BytesSent / k.FramesSent; mean < 2*transport.FrameBodyBytes {
			t.Errorf("%s: a frame has %d bytes, in the mean", row.name, mean)
		}
		if k.FramesSent != have.FramesReceived || k.BytesSent != have.BytesReceived {
			t.Errorf("%s: sent %+v, received %+v", row.name, k, have)
		}
		one.Close()
		two.Close()
	}
}
