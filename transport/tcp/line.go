package tcp

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/transport"
)

// inlineBytes is the most that Send writes itself: one frame. Copying more into the kernel takes longer than
// a wake-up.
const inlineBytes = transport.HeaderBytes + transport.FrameBodyBytes

// inlinePause is how long a link must have been idle before Send writes itself. Senders that come more often
// are better served by the writer, which turns their burst into one write. Measured on two cores, 1 KiB
// appends over the loopback interface, bench_test.go:
//
//	                               ping-pong (bare TCP: 5.3 µs)   1,000 in flight
//	always the writer              11.8 µs   2.2 × bare           1.2 µs a message, 690 a write
//	always the sender               7.3 µs   1.36 ×               2.5 µs, 1 a write
//	the sender after 3 µs of rest   7.4 µs   1.38 ×               1.0 µs, 22 a write
const inlinePause = 3 * time.Microsecond

// line is what this host sends to one peer in one class: the queue, the link while there is one, and the
// goroutine (run) that dials, writes what the senders do not write, and dials again.
//
// The line of class consensus is always up, so that a loss of the peer is noticed. The others are dialed when
// there is something to send, and closed when there has been nothing for Options.IdleTimeout.
type line struct {
	t     *Transport
	to    uint64
	class transport.Class
	bound int           // bytes that may wait
	wake  chan struct{} // something is queued and no goroutine writes

	mu       sync.Mutex
	addr     string
	other    string // tried when addr does not lead to the peer; empty: there is none
	onDemand bool   // it is dialed only when something is queued, whatever its class
	astray   bool   // other is tried next
	closed   bool
	cancel   context.CancelFunc // ends the current attempt: the dialing, the link, or the pause after it
	link     *link              // nil while there is none
	out      outbox
	pulse    latest // class consensus only
}

func newLine(t *Transport, to uint64, addr string, class transport.Class) *line {
	p := &line{t: t, to: to, addr: addr, class: class, wake: make(chan struct{}, 1), cancel: func() {}}
	switch class {
	case transport.ClassConsensus:
		p.out.kind, p.bound = transport.Consensus, t.o.QueueBytes
		if t.trust == nil {
			p.out.apart = apartBytes
		}
	case transport.ClassControl:
		p.out.kind, p.bound = transport.Control, t.o.ControlBytes
	case transport.ClassBulk:
		p.out.kind, p.bound = transport.Bulk, t.o.BulkBytes
	}
	return p
}

// send is Transport.Send for this line, which is of class consensus.
func (p *line) send(batch []transport.Envelope) bool {
	if len(batch) == 0 {
		return true
	}
	count := &p.t.count.kinds[transport.Consensus]
	total, fitting := 0, 0
	for i := range batch {
		n := transport.MessageBytes(batch[i].Group, &batch[i].Message)
		if n > p.t.o.FrameBytes {
			count.droppedTooLarge.Add(1)
			p.t.log.warn(p.to, "dropped a message that is larger than the largest body", "group", batch[i].Group, "bytes", n, "limit", p.t.o.FrameBytes)
			p.t.losses.add(p.to)
			continue
		}
		total += n
		fitting++
	}
	if fitting == 0 {
		return false
	}

	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		count.droppedUnknown.Add(uint64(fitting))
		return false
	}
	taken := fitting
	if fitting == len(batch) && p.out.bytes()+total+transport.HeaderBytes <= p.bound {
		p.out.addMessages(batch, total)
	} else {
		taken = p.out.addFitting(batch, p.t.o.FrameBytes, p.bound)
	}
	if taken < fitting {
		count.droppedFull.Add(uint64(fitting - taken))
		p.t.losses.add(p.to)
	}
	if taken == 0 {
		p.mu.Unlock()
		return false
	}
	p.push()
	return taken == len(batch)
}

// sendBytes is Transport.SendBytes for this line, whose class is that of kind.
func (p *line) sendBytes(kind transport.Kind, body []byte) bool {
	count := &p.t.count.kinds[kind]
	if len(body) > kind.MaxBodyBytes(p.t.o.FrameBytes) {
		count.droppedTooLarge.Add(1)
		return false
	}
	p.mu.Lock()
	switch {
	case p.closed:
		p.mu.Unlock()
		count.droppedUnknown.Add(1)
		return false
	case kind == transport.Pulse:
		if p.pulse.set(body) {
			count.replaced.Add(1)
		}
	case !transport.Fits(p.out.bytes(), len(body)+transport.HeaderBytes, p.bound):
		p.mu.Unlock()
		count.droppedFull.Add(1)
		return false
	default:
		p.out.addBody(body)
	}
	p.push()
	return true
}

// push brings what was just queued on its way. The caller holds mu; push unlocks it.
func (p *line) push() {
	l := p.link
	switch {
	case l == nil:
		p.mu.Unlock()
		signal(p.wake)
	case l.busy:
		p.mu.Unlock() // the goroutine that writes continues with it
	case !p.mayWriteInline(l):
		p.mu.Unlock()
		signal(p.wake)
	default:
		l.busy = true
		from := p.choose(l)
		p.mu.Unlock()
		p.writeInline(l, from)
	}
}

// mayWriteInline reports whether the sender writes. Bulk is left to the writer: its sender does other things
// meanwhile.
func (p *line) mayWriteInline(l *link) bool {
	if !p.t.inline || p.class == transport.ClassBulk || p.out.bytes() > inlineBytes {
		return false
	}
	return time.Since(l.lastWrite) >= inlinePause
}

// writeInline is the sender's one attempt to write the next frame. The sender has set l.busy.
func (p *line) writeInline(l *link, from *cutter) {
	frame, err := p.cut(l, from)
	n := 0
	if err == nil {
		n, err = l.tryWrite(frame)
	}
	if err != nil {
		l.fail(err) // the link stays busy, so no goroutine writes to it any more
		return
	}
	p.t.count.writesInline.Add(1)

	p.mu.Lock()
	l.left = after(frame, n)
	l.handed = len(l.left) > 0 || l.pulse.more() || l.burst.more()
	if !l.handed {
		p.release(l)
	}
	more := l.handed || p.waits()
	p.mu.Unlock()
	if more {
		signal(p.wake)
	}
}

// cut makes the next frame and counts it. It returns the pieces for the socket.
func (p *line) cut(l *link, from *cutter) ([][]byte, error) {
	most := transport.FrameBodyBytes
	if from == &l.burst {
		most = l.pace.frameBytes()
	}
	frame := from.next(most)
	count := &p.t.count.kinds[from.kind]
	count.framesSent.Add(1)
	count.bytesSent.Add(uint64(bytesOf(frame)))
	if l.seal == nil {
		return frame, nil
	}
	sealed, err := l.seal(frame[0]) // with TLS all is copied, so it is one piece
	l.sealed[0] = sealed
	return l.sealed[:], err
}

// waits reports whether anything is queued that no goroutine has taken. The caller holds mu.
func (p *line) waits() bool { return p.pulse.waiting || !p.out.empty() }

// choose is called at the border between two frames, with mu held, by the goroutine that set l.busy. It
// returns where the next frame comes from, nil if nothing waits. A pulse goes first, with all its frames.
// After it comes one other frame, if one waits: however fast pulses come, they do not keep consensus from
// moving.
func (p *line) choose(l *link) *cutter {
	p.recycle(l)
	if p.link != l {
		return nil // given up meanwhile: what is queued belongs to the next link
	}
	if p.pulse.waiting && !l.pulse.more() && !(l.pulsed && (l.burst.more() || !p.out.empty())) {
		l.pulse = p.pulse.take()
	}
	if l.pulse.more() {
		l.pulsed = true
		return &l.pulse
	}
	if !l.burst.more() && !p.out.empty() {
		l.burst = p.out.take()
	}
	if !l.burst.more() {
		return nil
	}
	l.pulsed = false
	p.out.inFlight = l.burst.unframed()
	return &l.burst
}

// recycle ends bursts of which every frame is written. The caller holds mu.
func (p *line) recycle(l *link) {
	if l.burst.buf != nil && !l.burst.more() {
		p.t.count.kinds[l.burst.kind].sent.Add(l.burst.count)
		if p.link == l {
			p.out.done(&l.burst)
		}
		l.burst = cutter{}
	}
	if l.pulse.buf != nil && !l.pulse.more() {
		p.t.count.kinds[transport.Pulse].sent.Add(1)
		if p.link == l {
			p.pulse.done(&l.pulse)
		}
		l.pulse = cutter{}
	}
}

// release ends the time in which only this goroutine writes. The caller holds mu.
func (p *line) release(l *link) {
	p.recycle(l)
	l.busy = false
	l.lastWrite = time.Now()
}

// dialOnDemand ends the link, or the attempt to make one. The next one waits until something is queued.
func (p *line) dialOnDemand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onDemand = true
	p.cancel()
}

// move changes the address and ends the attempt to reach the old one. It ends dialing on demand.
func (p *line) move(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.onDemand {
		p.onDemand = false
		signal(p.wake)
	}
	if addr != p.addr {
		p.addr, p.astray = addr, false
		p.cancel()
	}
}

// setOther changes the other address.
func (p *line) setOther(addr string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.other = addr
}

// turnAway makes the next attempt dial the other address, or the first one again.
func (p *line) turnAway() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.astray = !p.astray
}

func (p *line) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.discard()
	p.cancel()
	signal(p.wake)
}

// linked returns the link, or nil while there is none.
func (p *line) linked() *link {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.link
}

// status returns how much waits, of the class's kind and in a pulse, and whether there is a link.
func (p *line) status() (queuedBytes, pulseBytes int, up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.bytes(), p.pulse.bytes(), p.link != nil
}
