package tcp

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/transport"
)

// The goroutine of a line: it dials, writes what the senders leave to it, and dials again.

// run dials and serves links until the line is closed.
func (p *line) run() {
	pauseNext := p.t.o.BackoffMin
	for p.awaitWork() {
		ctx, addr, ok := p.begin()
		if !ok {
			return
		}
		began := time.Now()
		if p.attempt(ctx, addr) {
			pauseNext = p.t.o.BackoffMin
			continue // closed because it was idle: nothing is lost and nothing failed
		}
		p.drop()
		if time.Since(began) > p.t.o.BackoffMax {
			pauseNext = p.t.o.BackoffMin // the link was up, or dialing took long
		}
		pause(ctx, pauseNext/2+rand.N(pauseNext/2+1))
		pauseNext = min(2*pauseNext, p.t.o.BackoffMax)
	}
}

// awaitWork waits until the line should be dialed. It returns false when the line is closed.
func (p *line) awaitWork() bool {
	for {
		p.mu.Lock()
		closed, needed := p.closed, p.class == transport.ClassConsensus && !p.onDemand || p.waits()
		p.mu.Unlock()
		if closed || needed {
			return !closed
		}
		select {
		case <-p.t.ctx.Done():
			return false
		case <-p.wake:
		}
	}
}

// begin starts an attempt. It lasts until its context is cancelled or the next attempt begins.
func (p *line) begin() (ctx context.Context, addr string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancel()
	if p.closed {
		return nil, "", false
	}
	ctx, p.cancel = context.WithCancel(p.t.ctx)
	addr = p.addr
	if p.astray && p.other != "" {
		addr = p.other
	}
	return ctx, addr, true
}

// attempt is one connection, from dialing to its end. retired means that it was closed because it was idle.
func (p *line) attempt(ctx context.Context, addr string) (retired bool) {
	p.t.count.dials.Add(1)
	l, err := p.t.dial(ctx, p.to, addr, p.class)
	if err != nil {
		if ctx.Err() == nil {
			p.t.count.dialFailures.Add(1)
			p.turnAway()
			p.t.log.unconnected(p.to, err, func() { p.t.tellCertificate(p.to, addr, err) }, "addr", addr, "connection", p.class)
		}
		return false
	}
	began := p.t.log.now()
	stopWatching := context.AfterFunc(ctx, func() { l.fail(ctx.Err()) })
	defer stopWatching()
	p.t.work.Go(l.watch)
	if p.install(l) {
		retired = p.serve(l)
	}
	l.fail(context.Canceled)
	if ctx.Err() == nil && !retired {
		p.t.log.ended(p.to, p.t.log.now()-began, "addr", addr, "connection", p.class, "error", l.err)
	}
	return retired
}

func (p *line) install(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.link = l
	return true
}

// drop gives up the link and everything queued. A loss of consensus messages is reported.
func (p *line) drop() {
	p.mu.Lock()
	p.link = nil
	p.discard()
	closed := p.closed
	p.mu.Unlock()
	if !closed && p.class == transport.ClassConsensus {
		p.t.losses.add(p.to)
	}
}

func (p *line) discard() {
	p.out.discard()
	p.pulse.discard()
}

// serve is the writer: whenever something is queued and no goroutine writes, it writes all of it. It returns
// when the link is dead, or retired because it was idle.
func (p *line) serve(l *link) (retired bool) {
	var idle *time.Timer
	var isIdle <-chan time.Time // never ready for class consensus
	if p.class != transport.ClassConsensus {
		idle = time.NewTimer(p.t.o.IdleTimeout)
		defer idle.Stop()
		isIdle = idle.C
	}
	for {
		if p.seize(l) {
			if err := p.writeOut(l); err != nil {
				l.fail(err)
				return false
			}
			continue
		}
		select {
		case <-l.dead:
			return false
		case <-p.wake:
		case <-isIdle:
			wait, ok := p.retire(l)
			if ok {
				return true
			}
			idle.Reset(wait)
		}
	}
}

// seize makes the caller, the writer, the goroutine that writes, if there is something to write and no sender
// writes.
func (p *line) seize(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case l.handed:
		l.handed = false
		return true
	case l.busy || !p.waits():
		return false
	}
	l.busy = true
	return true
}

// writeOut writes frame after frame until nothing waits.
func (p *line) writeOut(l *link) error {
	left := l.left
	l.left = nil
	l.pace.begin()
	for {
		if len(left) == 0 {
			p.mu.Lock()
			from := p.choose(l)
			if from == nil {
				p.release(l)
				p.mu.Unlock()
				return nil
			}
			p.mu.Unlock()
			var err error
			if left, err = p.cut(l, from); err != nil {
				return err
			}
		}
		n := bytesOf(left)
		l.pace.writes(n)
		if err := l.writeAll(left, p.t.o.stall(p.class)); err != nil {
			return err
		}
		l.pace.wrote(n)
		p.t.count.writesQueued.Add(1)
		left = nil
	}
}

// retire gives up a link that has carried nothing for IdleTimeout. Otherwise it returns when to ask again.
func (p *line) retire(l *link) (wait time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait = p.t.o.IdleTimeout - time.Since(l.lastWrite); l.busy || p.waits() || wait > 0 {
		return max(wait, time.Millisecond), false
	}
	p.link = nil // from here on the next send dials
	p.t.count.idleCloses.Add(1)
	return 0, true
}
