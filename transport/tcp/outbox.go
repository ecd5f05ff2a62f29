package tcp

import (
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// keepBytes is the largest buffer that is kept for the next burst. Larger ones are left to the garbage
// collector.
const keepBytes = 4 << 20

// outbox holds the messages that wait for one peer: sealed frames, and the open frame that the next message
// joins. There are two buffers: one fills while the other is being written, then they swap. A message is
// copied once, into the filling buffer.
type outbox struct {
	filling  []byte // sealed frames, then one open frame at openAt
	openAt   int
	messages int
	frames   int
	spare    []byte // the other buffer, nil while it is being written
	inFlight int    // bytes of it that the kernel has not taken yet
	limit    int    // body bytes at which the next frame begins
}

// bytes returns the number of bytes that counts against the bound of the queue.
func (o *outbox) bytes() int { return len(o.filling) + o.inFlight }

func (o *outbox) empty() bool { return len(o.filling) == 0 }

// add appends messages of bytes bytes in total (transport.MessageBytes). If they do not all fit into the open
// frame, each is checked separately.
func (o *outbox) add(group uint64, msgs []raftpb.Message, bytes int) {
	fits := !o.empty() && o.body()+bytes <= o.limit
	for i := range msgs {
		if !fits && (o.empty() || o.body()+transport.MessageBytes(group, &msgs[i]) > o.limit) {
			o.open()
		}
		o.filling = transport.AppendMessage(o.filling, group, &msgs[i])
	}
	o.messages += len(msgs)
}

func (o *outbox) body() int { return len(o.filling) - o.openAt - transport.HeaderBytes }

// open seals the open frame, if there is one, and begins the next.
func (o *outbox) open() {
	if !o.empty() {
		transport.SealFrame(o.filling[o.openAt:])
	}
	o.openAt = len(o.filling)
	o.filling = transport.BeginFrame(o.filling)
	o.frames++
}

// burst is a filled buffer on its way into the socket.
type burst struct {
	buf              []byte
	openAt           int
	messages, frames int
}

// take swaps the buffers. The burst belongs to the caller until it calls done.
func (o *outbox) take() burst {
	b := burst{o.filling, o.openAt, o.messages, o.frames}
	o.inFlight = len(b.buf)
	o.filling, o.spare, o.messages, o.frames = o.spare[:0], nil, 0, 0
	return b
}

// seal completes the last frame; it needs no lock.
func (b *burst) seal() { transport.SealFrame(b.buf[b.openAt:]) }

// done gives a burst's buffer back for reuse.
func (o *outbox) done(b burst) {
	o.inFlight = 0
	if cap(b.buf) <= keepBytes {
		o.spare = b.buf[:0]
	}
}

// discard drops everything that is queued.
func (o *outbox) discard() {
	o.inFlight = 0
	o.messages, o.frames = 0, 0
	if o.filling = o.filling[:0]; cap(o.filling) > keepBytes {
		o.filling = nil
	}
}
