package tcp

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// inlineBytes is the most that Send writes itself. Copying more into the kernel takes longer than a wake-up.
const inlineBytes = 64 << 10

// inlinePause is how long a link must have been idle before Send writes itself. Senders that come more often
// are better served by the writer, which turns their burst into one write. Measured on two cores, 1 KiB
// appends over the loopback interface, bench_test.go:
//
//	                               ping-pong (bare TCP: 5.3 µs)   1,000 in flight
//	always the writer              11.8 µs   2.2 × bare           1.2 µs a message, 690 a write
//	always the sender               7.3 µs   1.36 ×               2.5 µs, 1 a write
//	the sender after 3 µs of rest   7.4 µs   1.38 ×               1.0 µs, 22 a write
const inlinePause = 3 * time.Microsecond

// peer is one host to which this host sends: the queue, the link while there is one, and the goroutine (run)
// that dials, writes what the senders do not write, and dials again.
type peer struct {
	t    *Transport
	id   uint64
	wake chan struct{} // something is queued and no goroutine writes

	mu     sync.Mutex
	addr   string
	closed bool
	cancel context.CancelFunc // ends the current attempt: the dialing, the link, or the pause after it
	link   *link              // nil while there is none
	out    outbox
}

func newPeer(t *Transport, id uint64, addr string) *peer {
	p := &peer{t: t, id: id, addr: addr, wake: make(chan struct{}, 1), cancel: func() {}}
	p.out.limit = min(transport.BatchBytes, t.o.FrameBytes)
	return p
}

// send is Transport.Send for this peer.
func (p *peer) send(group uint64, msgs []raftpb.Message) bool {
	if len(msgs) == 0 {
		return true
	}
	total := 0
	for i := range msgs {
		n := transport.MessageBytes(group, &msgs[i])
		if n > p.t.o.FrameBytes {
			p.t.count.droppedTooLarge.Add(uint64(len(msgs)))
			p.t.log.warn(p.id, "dropped a message that is larger than the largest frame", "bytes", n, "limit", p.t.o.FrameBytes)
			p.t.losses.add(p.id)
			return false
		}
		total += n
	}

	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		p.t.count.droppedUnknown.Add(uint64(len(msgs)))
		return false
	}
	if int64(p.out.bytes())+int64(total)+transport.HeaderBytes > p.t.o.QueueBytes {
		p.mu.Unlock()
		p.t.count.droppedFull.Add(uint64(len(msgs)))
		p.t.losses.add(p.id)
		return false
	}
	p.out.add(group, msgs, total)
	l := p.link
	if l == nil || l.busy {
		p.mu.Unlock()
		return true
	}
	if !p.mayWriteInline(l) {
		p.mu.Unlock()
		signal(p.wake)
		return true
	}
	l.busy = true
	b := p.out.take()
	p.mu.Unlock()
	p.writeInline(l, b)
	return true
}

func (p *peer) mayWriteInline(l *link) bool {
	if !p.t.inline || len(p.out.filling) > inlineBytes {
		return false
	}
	return time.Since(l.lastWrite) >= inlinePause
}

// writeInline is the sender's one attempt. The sender has set l.busy.
func (p *peer) writeInline(l *link, b burst) {
	b.seal()
	n, err := l.tryWrite(b.buf)
	if err != nil {
		l.fail(err) // the link stays busy, so no goroutine writes to it any more
		return
	}
	p.t.count.writesInline.Add(1)

	p.mu.Lock()
	if n < len(b.buf) {
		l.left, l.leftAt, l.hasLeft = b, n, true
		if p.link == l {
			p.out.inFlight = len(b.buf) - n
		}
	} else {
		p.written(l, b)
	}
	more := l.hasLeft || !p.out.empty()
	p.mu.Unlock()
	if more {
		signal(p.wake)
	}
}

// written ends a write of b to l. If the link was given up meanwhile, its burst no longer counts.
func (p *peer) written(l *link, b burst) {
	l.busy = false
	l.lastWrite = time.Now()
	if p.link == l {
		p.out.done(b)
	}
	p.t.count.framesSent.Add(uint64(b.frames))
	p.t.count.messagesSent.Add(uint64(b.messages))
	p.t.count.bytesSent.Add(uint64(len(b.buf)))
}

// run dials and serves links until the peer is closed.
func (p *peer) run() {
	pauseNext := p.t.o.BackoffMin
	for {
		ctx, addr, ok := p.begin()
		if !ok {
			return
		}
		began := time.Now()
		p.attempt(ctx, addr)
		p.drop()
		if time.Since(began) > p.t.o.BackoffMax {
			pauseNext = p.t.o.BackoffMin // the link was up, or dialing took long
		}
		pause(ctx, pauseNext/2+rand.N(pauseNext/2+1))
		pauseNext = min(2*pauseNext, p.t.o.BackoffMax)
	}
}

// begin starts an attempt. It lasts until its context is cancelled or the next attempt begins.
func (p *peer) begin() (ctx context.Context, addr string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancel()
	if p.closed {
		return nil, "", false
	}
	ctx, p.cancel = context.WithCancel(p.t.ctx)
	return ctx, p.addr, true
}

// attempt is one connection, from dialing to its end.
func (p *peer) attempt(ctx context.Context, addr string) {
	p.t.count.dials.Add(1)
	l, err := p.t.dial(ctx, p.id, addr)
	if err != nil {
		if ctx.Err() == nil {
			p.t.count.dialFailures.Add(1)
			p.t.log.warn(p.id, "cannot connect to a peer", "addr", addr, "error", err)
		}
		return
	}
	stopWatching := context.AfterFunc(ctx, func() { l.fail(ctx.Err()) })
	defer stopWatching()
	p.t.work.Go(l.watch)
	if p.install(l) {
		p.serve(l)
	}
	l.fail(context.Canceled)
	if ctx.Err() == nil {
		p.t.log.warn(p.id, "the connection to a peer ended", "addr", addr, "error", l.err)
	}
}

func (p *peer) install(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.link = l
	return true
}

// drop gives up the link and everything queued, and reports the loss.
func (p *peer) drop() {
	p.mu.Lock()
	p.link = nil
	p.out.discard()
	closed := p.closed
	p.mu.Unlock()
	if !closed {
		p.t.losses.add(p.id)
	}
}

// serve is the writer: whenever something is queued and no goroutine writes, it writes all of it. It returns
// when the link is dead.
func (p *peer) serve(l *link) {
	for {
		b, at, ok := p.next(l)
		if !ok {
			select {
			case <-l.dead:
				return
			case <-p.wake:
			}
			continue
		}
		if at == 0 {
			b.seal()
		}
		if err := l.writeAll(b.buf[at:], p.t.o.StallTimeout); err != nil {
			l.fail(err)
			return
		}
		p.t.count.writesQueued.Add(1)
		p.mu.Lock()
		p.written(l, b)
		p.mu.Unlock()
	}
}

// next returns what the writer must write, starting at byte at: the rest of a sender's attempt, or everything
// queued.
func (p *peer) next(l *link) (b burst, at int, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case l.hasLeft:
		b, at = l.left, l.leftAt
		l.left, l.hasLeft = burst{}, false
	case l.busy || p.out.empty():
		return b, 0, false
	default:
		l.busy = true
		b = p.out.take()
	}
	return b, at, true
}

// move changes the address and ends the attempt to reach the old one.
func (p *peer) move(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if addr != p.addr {
		p.addr = addr
		p.cancel()
	}
}

func (p *peer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.out.discard()
	p.cancel()
}

func (p *peer) status() (queuedBytes int, up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.bytes(), p.link != nil
}
