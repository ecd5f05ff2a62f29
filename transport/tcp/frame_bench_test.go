package tcp

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/stopwatch"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// BenchmarkFrame is what a received frame costs a connection: one read, decoding, the check of its sum, the
// copy of its entries, and the call of the receiver. What the receiver does is BenchmarkReceive of package
// host. Compare with another commit in turn:
//
//	go test ./transport/tcp -run '^$' -bench Frame -benchtime 5000x -count 6
func BenchmarkFrame(b *testing.B) {
	for _, row := range []struct {
		name string
		msgs []transport.Envelope
	}{
		{"answer", []transport.Envelope{{Group: 1, Message: raftpb.Message{Type: raftpb.MsgAppResp, To: 2, From: 1, Term: 5, Index: 10}}}},
		{"1", appendOf(1 << 10)},
		{"100", appendOf(manyOf(100, 1<<10)...)},
	} {
		b.Run(row.name, func(b *testing.B) {
			_, t := pairOf(b, true, false)
			var body []byte
			for i := range row.msgs {
				body = transport.AppendMessage(body, row.msgs[i].Group, &row.msgs[i].Message)
			}
			r := &frameWatch{left: b.N}
			t.receiver = r
			c := &repeating{bytes: transport.AppendFrames(nil, transport.Consensus, body), watch: r}
			if err := t.deliver(1, transport.ClassConsensus, c); err != io.EOF || r.left > 0 {
				b.Fatalf("%d frames are missing: %v", r.left, err)
			}
			r.Report(b, "frame")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func manyOf(n, bytes int) (all []int) {
	for range n {
		all = append(all, bytes)
	}
	return all
}

// repeating is a connection that brings the frames of one body again and again.
type repeating struct {
	net.Conn
	bytes []byte
	sent  int // of the frame that is under way
	watch *frameWatch
}

func (c *repeating) Read(b []byte) (int, error) {
	if c.sent == 0 {
		if c.watch.begun {
			c.watch.End()
		}
		if c.watch.left == 0 {
			return 0, io.EOF
		}
		c.watch.begun = true
		c.watch.Begin()
	}
	n := copy(b, c.bytes[c.sent:])
	c.sent = (c.sent + n) % len(c.bytes)
	return n, nil
}

func (c *repeating) SetReadDeadline(time.Time) error { return nil }

// frameWatch is the receiver.
type frameWatch struct {
	guest
	stopwatch.Watch
	begun bool
	left  int
}

func (r *frameWatch) Receive(uint64, []transport.Envelope) { r.left-- }
func (r *frameWatch) Unreachable(uint64)                   {}
