package host

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
)

const (
	minRetryAfter = time.Millisecond
	maxRetryAfter = 10 * time.Second
	// drainSample is the least time over which the rate is measured, and maxDrainSample the most: a longer
	// one counts time in which there was nothing to take.
	drainSample    = 10 * time.Millisecond
	maxDrainSample = time.Second
	// maxSpaceWaits bounds the waits for space in one group.
	maxSpaceWaits = 1 << 14
)

// perSecond returns the rate at which commands leave the inbox, in bytes, or 0 if it is not known, because
// the last refusal was long ago.
func (d *drainRate) perSecond(now time.Duration) float64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if passed := now - d.at; passed >= drainSample {
		taken := d.taken.Load()
		if d.rate = 0; passed <= maxDrainSample {
			d.rate = float64(taken-d.before) / passed.Seconds()
		}
		d.at, d.before = now, taken
	}
	return d.rate
}

// overloaded returns the error for a command that does not fit.
func (g *Group) overloaded() error {
	commands, bytes := g.inbox.waitingCommands()
	e := &outcome.OverloadedError{Commands: commands, Bytes: bytes, Share: g.host.memory.waiting.Max, RetryAfter: g.host.config.HeartbeatInterval}
	if rate := g.proposals.drain.perSecond(g.now()); rate > 0 {
		e.RetryAfter = time.Duration(min(float64(bytes)/rate, maxRetryAfter.Seconds()) * float64(time.Second))
	}
	e.RetryAfter = min(max(e.RetryAfter, minRetryAfter), maxRetryAfter).Round(time.Microsecond)
	return e
}

// AskSpace begins to wait until c, which Group.Call has refused with ErrOverloaded, may fit. Waits end in
// their order, as commands leave the inbox. The space is not reserved: a call that comes first may take it,
// and then Call refuses again. If too many wait already, the wait ends at once with ErrOverloaded.
func (g *Group) AskSpace(w *SpaceWait, c *Call) {
	w.bytes, w.done, w.place.Owner = proposals.BytesOf(c.Data), make(chan struct{}), w
	s := &g.proposals.spaces
	s.mu.Lock()
	switch {
	case s.closed != nil:
		w.end(wrap(outcome.ErrStopped, s.closed))
	case s.waits.Len() >= maxSpaceWaits:
		w.end(fmt.Errorf("%w, and %d callers wait for space, which is the most", g.overloaded(), maxSpaceWaits))
	default:
		s.waits.Push(&w.place)
		s.n.Add(1)
	}
	s.mu.Unlock()
	g.wakeLazily()
}

func (w *SpaceWait) end(err error) {
	w.err = err
	close(w.done)
}

// Poll reports whether the wait has ended. A nil error means that the call may fit now.
func (w *SpaceWait) Poll() (done bool, err error) {
	select {
	case <-w.done:
		return true, w.err
	default:
		return false, nil
	}
}

// WaitSpace is AskSpace for callers that may block. If ctx ends first, the error wraps ErrOverloaded and the
// context's.
func (g *Group) WaitSpace(ctx context.Context, c *Call) error {
	var w SpaceWait
	g.AskSpace(&w, c)
	select {
	case <-w.done:
		return w.err
	case <-ctx.Done():
		g.proposals.spaces.leave(&w)
		return fmt.Errorf("millrace: not proposed: %w: %w", g.overloaded(), g.waitEnd(ctx))
	}
}

func (s *spaceWaiters) leave(w *SpaceWait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.place.In() != nil {
		w.place.Leave()
		s.n.Add(-1)
	}
}

// grantSpace ends the first waits, as many as fit.
func (g *Group) grantSpace() {
	s := &g.proposals.spaces
	if s.n.Load() == 0 {
		return
	}
	free := g.inbox.space()
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := s.waits.First(); p != nil && p.Owner.bytes <= free; p = s.waits.First() {
		free -= p.Owner.bytes
		p.Leave()
		s.n.Add(-1)
		p.Owner.end(nil)
	}
}

// release ends all waits, as if there were space: what comes then is refused for another reason.
func (s *spaceWaiters) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := s.waits.Pop(); p != nil; p = s.waits.Pop() {
		s.n.Add(-1)
		p.Owner.end(nil)
	}
}

// close ends all waits, and later ones at once.
func (s *spaceWaiters) close(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return
	}
	s.closed = cause
	for p := s.waits.Pop(); p != nil; p = s.waits.Pop() {
		s.n.Add(-1)
		p.Owner.end(wrap(outcome.ErrStopped, cause))
	}
}
