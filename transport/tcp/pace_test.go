package tcp

import (
	"math"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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
	frame := func(bytesPerSecond int) {
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

// stalled is a connection whose socket takes nothing at once. It keeps the first time limit of a write.
type stalled struct {
	net.Conn
	limit time.Time
}

func (*stalled) Write(b []byte) (int, error) { return len(b), nil }

func (s *stalled) SetWriteDeadline(at time.Time) error {
	if s.limit.IsZero() {
		s.limit = at
	}
	return nil
}

// full is a socket that takes nothing.
type full struct{ syscall.RawConn }

func (full) Write(func(uintptr) bool) error { return nil }

// A frame has one stall time for every 64 KiB of its body. Its header, and what TLS adds, have none.
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
			if err := l.writeAll([][]byte{make([]byte, row.bytes)}, time.Second); err != nil {
				t.Fatal(err)
			}
			if have := time.Until(c.limit); have != time.Duration(row.want)*time.Second {
				t.Errorf("%d bytes have %v, want %d stall times of a second", row.bytes, have, row.want)
			}
		}
	})
}
