package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// network carries frames, the bytes that TCP would carry, and is as bad as the nemesis wants. It breaks what the real
// transport keeps (order, no repetition), since Raft must not need it.
type network struct {
	w   *world
	rng *rand.Rand
	cut map[link]bool

	drop, duplicate, corrupt float64 // probabilities
	slowest                  time.Duration
}

// link is one direction.
type link struct{ from, to uint64 }

// Start, Send and Close make an incarnation its own millrace.Transport.

func (i *incarnation) Start(r transport.Receiver) { i.receiver = r }

func (i *incarnation) Close() error { i.receiver = nil; return nil }

func (i *incarnation) Send(to, group uint64, messages []raftpb.Message) bool {
	if i.dead {
		return false
	}
	frame := transport.BeginFrame(nil)
	for k := range messages {
		i.w.checkPromise(i, &messages[k])
		frame = transport.AppendMessage(frame, group, &messages[k])
	}
	transport.SealFrame(frame)
	return i.w.net.carry(i, to, frame)
}

func (n *network) carry(from *incarnation, to uint64, frame []byte) bool {
	l := link{from.host.id, to}
	if n.cut[l] || n.rng.Float64() < n.drop {
		if n.rng.IntN(2) == 0 { // a real transport tells of some losses
			n.w.plan(time.Millisecond, fmt.Sprintf("%s finds host %d unreachable", from.name, to), from, func() {
				if from.receiver != nil {
					from.receiver.Unreachable(to)
				}
			})
		}
		return false
	}
	copies := 1
	if n.rng.Float64() < n.duplicate {
		copies = 2
	}
	for range copies {
		n.deliver(l, append([]byte(nil), frame...))
	}
	return true
}

func (n *network) deliver(l link, frame []byte) {
	if n.rng.Float64() < n.corrupt {
		frame[n.rng.IntN(len(frame))] ^= 1 << n.rng.IntN(8)
	}
	delay := between(n.rng, 20*time.Microsecond, n.slowest)
	n.w.plan(delay, fmt.Sprintf("%d bytes from host %d reach host %d", len(frame), l.from, l.to), nil, func() {
		i := n.w.hosts[l.to-1].alive
		if i == nil || i.receiver == nil || n.cut[l] {
			return
		}
		body, _, err := transport.OpenFrame(frame, transport.DefaultFrameBytes)
		if err != nil {
			return // corrupt; a real transport would drop the connection
		}
		batch, err := transport.DecodeBody(body, nil)
		if err != nil {
			n.w.violate("a frame with a good checksum does not decode: %v", err)
		}
		i.receiver.Receive(l.from, batch)
	})
}
