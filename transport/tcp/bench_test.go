package tcp

import (
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// inlinePause has the measurements and what was concluded from them. To repeat them:
//
//	go test -run xxx -bench . -benchtime 1s -count 3 ./transport/tcp

// answering sends an acknowledgement for every batch, from the goroutine that received it.
type answering struct {
	guest
	t  *Transport
	to uint64
}

func (a *answering) Receive(from uint64, batch []transport.Envelope) {
	m := raftpb.Message{Type: raftpb.MsgAppResp, To: from, From: a.to, Term: 5, Index: batch[len(batch)-1].Message.Index}
	a.t.Send(from, []transport.Envelope{{Group: 1, Message: m}})
}
func (a *answering) Unreachable(uint64) {}

// asking sends the next append when an acknowledgement arrives, from the goroutine that received it, like a
// host that steps its core on the reader's goroutine.
type asking struct {
	guest
	t    *Transport
	msgs []transport.Envelope
	left int
	done chan struct{}
}

func (a *asking) Receive(uint64, []transport.Envelope) {
	if a.left--; a.left > 0 {
		a.t.Send(2, a.msgs)
	} else if a.left == 0 {
		close(a.done)
	}
}
func (a *asking) Unreachable(uint64) {}

type idle struct{ guest }

func (idle) Receive(uint64, []transport.Envelope) {}
func (idle) Unreachable(uint64)                   {}

// counting returns the credit of a sender that keeps a window of messages in flight.
type counting struct {
	guest
	credit chan int
}

func (c *counting) Receive(_ uint64, batch []transport.Envelope) { c.credit <- len(batch) }
func (c *counting) Unreachable(uint64)                           {}

func pairOf(b testing.TB, inline, secure bool) (*Transport, *Transport) {
	b.Helper()
	var ts [2]*Transport
	a := newAuthority(b, "bench")
	for i := range ts {
		o := Options{ID: uint64(i + 1)}
		if secure {
			o.TLS = a.member(o.ID)
		}
		t, err := Listen(o)
		if err != nil {
			b.Fatal(err)
		}
		t.inline = inline
		ts[i] = t
		b.Cleanup(func() { t.Close() })
	}
	ts[0].SetPeer(2, ts[1].Addr())
	ts[1].SetPeer(1, ts[0].Addr())
	return ts[0], ts[1]
}

func appendOf(valueBytes ...int) []transport.Envelope {
	m := raftpb.Message{Type: raftpb.MsgApp, To: 2, From: 1, Term: 5, LogTerm: 5, Index: 10, Commit: 9}
	for i, n := range valueBytes {
		m.Entries = append(m.Entries, raftpb.Entry{Term: 5, Index: 11 + uint64(i), Data: make([]byte, n)})
	}
	return []transport.Envelope{{Group: 1, Message: m}}
}

// ways are the ways in which a message leaves.
var ways = []struct {
	name           string
	inline, secure bool
}{{"writer", false, false}, {"sender", true, false}, {"sender-tls", true, true}}

// A 1 KiB append one way, an acknowledgement back; for comparison, the same bytes over a bare TCP connection.
func BenchmarkPingPong(b *testing.B) {
	var rawNs float64
	b.Run("raw", func(b *testing.B) {
		rawPingPong(b, 1024+60, 40)
		rawNs = float64(b.Elapsed().Nanoseconds()) / float64(b.N)
	})
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) {
			one, two := pairOf(b, way.inline, way.secure)
			a := &asking{t: one, msgs: appendOf(1024), left: b.N, done: make(chan struct{})}
			one.Start(a)
			two.Start(&answering{t: two, to: 2})
			b.ReportAllocs()
			b.ResetTimer()
			one.Send(2, a.msgs)
			<-a.done
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rawNs, "×raw")
		})
	}
}

func rawPingPong(b *testing.B, there, back int) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in, out := make([]byte, there), make([]byte, back)
		for {
			if _, err := io.ReadFull(c, in); err != nil {
				return
			}
			if _, err := c.Write(out); err != nil {
				return
			}
		}
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	out, in := make([]byte, there), make([]byte, back)
	for b.Loop() {
		if _, err := c.Write(out); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(c, in); err != nil {
			b.Fatal(err)
		}
	}
}

// A window of 1,000 messages in flight. Each is an entry of 1 KiB and a Send of its own.
func BenchmarkPipelined(b *testing.B) {
	for _, way := range ways {
		b.Run(way.name, func(b *testing.B) { inFlight(b, way.inline, way.secure, 1000, appendOf(1024), 1024) })
	}
}

// A window of 16 appends of 1 MiB in flight, each with 1,024 entries, as a leader sends them to a follower
// that catches up; and of 64 KiB, a frame each.
func BenchmarkLargeAppends(b *testing.B) {
	for name, entries := range map[string]int{"1MiB": 1024, "64KiB": 63} {
		values := make([]int, entries)
		for i := range values {
			values[i] = 1000
		}
		for _, way := range ways[1:] {
			b.Run(name+"/"+way.name, func(b *testing.B) { inFlight(b, true, way.secure, 16, appendOf(values...), int64(entries*1000)) })
		}
	}
}

// inFlight keeps a window of messages between two hosts.
func inFlight(b *testing.B, inline, secure bool, size int, msgs []transport.Envelope, bytes int64) {
	one, two := pairOf(b, inline, secure)
	c := &counting{credit: make(chan int, size)}
	one.Start(idle{})
	two.Start(c)
	b.SetBytes(bytes)
	b.ReportAllocs()
	b.ResetTimer()
	for sent, window := 0, size; sent < b.N || window < size; {
		for window == 0 || sent == b.N && window < size {
			window += <-c.credit
		}
		for ; window > 0 && sent < b.N; sent++ {
			one.Send(2, msgs)
			window--
		}
	}
	s := one.Stats()
	b.ReportMetric(float64(b.N)/float64(s.WritesInline+s.WritesQueued), "msgs/write")
}

// A connection from nothing: both certificates are checked, and both sides introduce themselves.
func BenchmarkConnect(b *testing.B) {
	for name, secure := range map[string]bool{"plain": false, "tls": true} {
		b.Run(name, func(b *testing.B) {
			one, two := pairOf(b, true, secure)
			two.Start(idle{})
			one.self.ID, one.receiver = 1, idle{}
			for b.Loop() {
				two.limit.mu.Lock()
				clear(two.limit.addrs)
				two.limit.strangers.used = 0
				two.limit.mu.Unlock()
				l, err := one.dial(b.Context(), 2, two.Addr(), transport.ClassBulk)
				if err != nil {
					b.Fatal(err)
				}
				l.fail(nil)
				for len(two.inbound.all()) > 0 {
					runtime.Gosched()
				}
			}
		})
	}
}
