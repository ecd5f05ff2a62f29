package grpctransport

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/millrace/millrace/transport"
)

// line is what waits for one peer in one class. A goroutine opens the stream and sends, until the peer is
// removed or its address changes.
type line struct {
	t     *Transport
	to    uint64
	class transport.Class
	conn  *grpc.ClientConn
	wake  chan struct{}
	ctx   context.Context // of the line
	end   context.CancelFunc

	// Guarded by Transport.mu.
	queue  [][]byte // messages of gRPC; Raft's messages join the last one as long as it is short
	pulse  []byte   // the pulse that waits, or nil
	pulsed bool     // the last one that was taken was a pulse
	waits  [transport.Kinds]int
	stream grpc.ClientStream // nil: there is none, or it has ended
}

// pauseAfterFailure is how long a line waits before it opens the next stream.
const pauseAfterFailure = 5 * time.Millisecond

// line returns the line to a peer, or nil if nothing may be sent to it. mu is held.
func (t *Transport) line(to uint64, class transport.Class) *line {
	p := t.peers[to]
	if p == nil || t.closed {
		return nil
	}
	if p.lines[class] != nil {
		return p.lines[class]
	}
	if p.conn == nil {
		conn, err := grpc.NewClient("passthrough:///"+p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(reconnect),
			grpc.WithDefaultCallOptions(grpc.ForceCodecV2(codec{}), grpc.MaxCallRecvMsgSize(maxMessageBytes)))
		if err != nil { // it dials later: only an option can be wrong
			panic("grpctransport: " + err.Error())
		}
		p.conn = conn
	}
	l := &line{t: t, to: to, class: class, conn: p.conn, wake: make(chan struct{}, 1)}
	l.ctx, l.end = context.WithCancel(t.quit)
	p.lines[class] = l
	t.work.Go(l.run)
	return l
}

// join adds a message of Raft to the last message of gRPC, or begins another one. mu is held.
func (l *line) join(e *transport.Envelope, size int) {
	last := len(l.queue) - 1
	if last < 0 || len(l.queue[last])+size > transport.FrameBodyBytes {
		l.queue = append(l.queue, message(transport.Consensus, nil))
		last++
	}
	l.queue[last] = transport.AppendMessage(l.queue[last], e.Group, &e.Message)
	l.waits[transport.Consensus] += size
}

// take returns what goes next. A pulse goes first, but two go one after the other only if nothing else waits.
func (l *line) take() []byte {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	var next []byte
	switch {
	case l.pulse != nil && !(l.pulsed && len(l.queue) > 0):
		next, l.pulse, l.pulsed = l.pulse, nil, true
	case len(l.queue) > 0:
		next, l.queue, l.pulsed = l.queue[0], l.queue[1:], false
	default:
		l.queue = nil
		return nil
	}
	kind := kindOf(next)
	l.waits[kind] -= len(next) - 1
	stats := &l.t.stats.Kinds[kind]
	stats.FramesSent++
	stats.BytesSent += uint64(len(next))
	return next
}

func (l *line) run() {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.wake:
		}
		for next := l.take(); next != nil; next = l.take() {
			if l.ctx.Err() != nil {
				return
			}
			if !l.send(next) && !l.pause() {
				return
			}
		}
	}
}

// send sends one message of gRPC, and reports whether it is under way.
func (l *line) send(next []byte) bool {
	stream := l.open()
	if stream != nil && stream.SendMsg(&next) == nil {
		return true
	}
	l.forget(stream)
	return false
}

// pause waits a little, and drops what waits: the peer cannot be reached. It reports whether the line
// continues.
func (l *line) pause() bool {
	l.t.mu.Lock()
	l.queue, l.pulse = nil, nil
	clear(l.waits[:])
	l.t.mu.Unlock()
	timer := time.NewTimer(pauseAfterFailure)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// open returns the stream, and opens and introduces it if there is none; nil: the peer cannot be reached.
func (l *line) open() grpc.ClientStream {
	l.t.mu.Lock()
	stream, self := l.stream, l.t.self
	if stream == nil {
		l.t.stats.Dials++
	}
	l.t.mu.Unlock()
	if stream != nil {
		return stream
	}
	if self.ID == 0 {
		return nil // not started: the host has not said who it is
	}
	self.Proof = transport.ProofOf(l.t.receiver, self.Channel)
	ctx, end := context.WithCancel(l.ctx)
	stream, err := grpc.NewClientStream(ctx, &streamDesc, l.conn, methodOf)
	if err != nil {
		end()
		return nil
	}
	first := hello(l.to, l.class, self)
	if err := stream.SendMsg(&first); err != nil {
		end()
		return nil
	}
	l.t.mu.Lock()
	l.stream = stream
	l.t.mu.Unlock()
	if !l.t.begin() {
		end()
		return nil
	}
	go func() {
		defer l.t.work.Done()
		defer end()
		l.watch(stream)
	}()
	return stream
}

// watch waits until a stream ends, which the peer does that refuses it, closes or dies. Nothing comes back on
// it.
func (l *line) watch(stream grpc.ClientStream) {
	var nothing []byte
	err := stream.RecvMsg(&nothing)
	l.forget(stream)
	if l.ctx.Err() == nil && l.class == transport.ClassConsensus {
		transport.TellRefusal(l.t.receiver, l.to, refusal(err))
	}
}

// forget notes that a stream has ended: what was sent on it may be lost.
func (l *line) forget(stream grpc.ClientStream) {
	l.t.mu.Lock()
	defer l.t.mu.Unlock()
	if l.stream == stream {
		l.stream = nil
	}
	if l.class == transport.ClassConsensus && l.ctx.Err() == nil {
		l.t.lose(l.to)
	}
}
