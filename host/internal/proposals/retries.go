package proposals

import (
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft"
)

// routedCalls are the calls of this host that its log does not hold as plain entries (Queue.ring). Each
// turn looks where they can go:
//
//	this host leads             a call without a number is proposed with a plain header
//	another host leads          it gets a number of this host's session and is forwarded (route.go)
//	no leader is known          it waits
//
// A try ends surely if the log shows that another entry took its place, or if the other host answers that it
// has refused it. A call all of whose tries have ended surely is as good as new. Any other try may still be
// committed, so the call is sent again with the same number: at once when the leader or the term changes, and
// else after an election timeout, then twice as long, and so on. Members apply a number once
// (session.Table), and the call has its outcome when this host applies it.
//
// Bounds: a call counts in the budget for commands that wait while it is in the inbox, and from its first
// turn on in the one for proposed commands, until it is committed or its outcome is known; the core bounds
// what a leader has not applied yet. While calls cannot go on, the inbox keeps them (CanGo), so a client gets
// ErrOverloaded before the group takes more than it may.
//
// The turn and the apply lanes share the lists, under Queue.mu.
type routedCalls struct {
	most      int          // numbers that may wait at a time
	n         atomic.Int64 // calls in the lists; 0 spares turn and apply lane the lock
	withdrawn atomic.Int64 // calls that were given up since the latest look
	fresh     atomic.Bool  // a try has ended since the latest look

	// Under Queue.mu, as the methods are that do not say where they run.
	again  sched.Ring[*Call] // have no live try
	sent   sched.Ring[*Call] // have one
	id     session.ID        // of this host's own session; zero: not drawn
	base   uint64            // the lowest number that waits; the number of window[0]
	window []*Call           // by number; nil: answered
	named  map[markKey]*Call
	// frameMost bounds the commands of the next forward frame; 0: only their bytes are bounded. A leader may
	// have less memory than this host. So a refusal for lack of space halves it, and an outcome doubles it.
	frameMost int
	// framesMost bounds the frames that one turn sends; 0: there is no bound. A refusal makes it one, and an
	// outcome doubles it. refusals counts how often it was made one since the latest outcome.
	framesMost, refusals int

	// Owned by the turn.
	router      router
	lead, term  uint64 // as of the latest look
	nextRetry   int64  // the tick of the next try of one of sent, or earlier
	pausedUntil int64  // the leader has refused: no try before this tick,
	pausedAt    uint64 // or before commit index and applied index together are more than this
}

type markKey struct {
	id     session.ID
	number uint64
}

// maxBackoff bounds the time between two tries, as a power of two election timeouts.
const maxBackoff = 2

// requeue takes a call whose latest try has surely ended. It returns false if its client has given it up.
func (s *routedCalls) requeue(c *Call) bool {
	if !c.w.requeue() {
		return false
	}
	s.again.Push(&c.place)
	s.n.Add(1)
	s.fresh.Store(true)
	return true
}

// remove takes a call out of the lists. Its number is answered.
func (s *routedCalls) remove(c *Call) {
	if c.place.In() == nil {
		return
	}
	c.place.Leave()
	s.n.Add(-1)
	s.dropNumber(c)
	if c.Session != nil && s.named[keyOf(*c.Session)] == c {
		delete(s.named, keyOf(*c.Session))
	}
}

func keyOf(m session.Mark) markKey { return markKey{m.ID, m.Number} }

func (s *routedCalls) dropNumber(c *Call) {
	if c.number == 0 {
		return
	}
	if at := c.number - s.base; at < uint64(len(s.window)) && s.window[at] == c {
		s.window[at] = nil
	}
	c.number = 0
	n := 0
	for n < len(s.window) && s.window[n] == nil {
		n++
	}
	s.window = s.window[n:]
	s.base += uint64(n)
}

// mark returns the place of a call in its session, and gives it one if it has none. It returns false if the
// session has no number left. A session that is born too early, since this host has not applied its log yet,
// is drawn again (renew).
func (q *Queue) mark(c *Call) (session.Mark, bool) {
	s := &q.calls
	if c.Session != nil {
		if s.named == nil {
			s.named = map[markKey]*Call{}
		}
		if other := s.named[keyOf(*c.Session)]; other != nil && other != c {
			return session.Mark{}, false // it has its turn when the other is answered
		}
		s.named[keyOf(*c.Session)] = c
		return *c.Session, true
	}
	if s.id.IsZero() {
		s.id, s.base, s.window = q.DrawSession(), 1, nil
	}
	if c.number == 0 {
		if len(s.window) >= s.most {
			return session.Mark{}, false
		}
		s.window = append(s.window, c)
		c.number = s.base + uint64(len(s.window)) - 1
	}
	return session.Mark{ID: s.id, Number: c.number, Low: s.base}, true
}

// renew gives up the session of this host if it is the one given, and reports whether it is. Its calls have
// no live try then (ExpireCall).
func (q *Queue) renew(id session.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &q.calls
	if s.id != id || id.IsZero() {
		return false
	}
	for _, c := range s.window {
		if c == nil {
			continue
		}
		c.number, c.live, c.frame, c.tries = 0, 0, 0, 0
		if c.place.In() == &s.sent {
			c.place.Leave()
			c.w.requeue()
			s.again.Push(&c.place)
		}
	}
	s.id, s.base, s.window = session.ID{}, 1, nil
	s.fresh.Store(true)
	return true
}

// claimCallers finds the calls of commands that are applied now, and removes them. It returns their bytes.
func (q *Queue) claimCallers(commands []statemachine.Command, now time.Duration) (bytes int64) {
	s, committed := &q.calls, uint64(0)
	for i := range commands {
		c := &commands[i]
		if c.Number == 0 || c.Caller != nil {
			continue
		}
		call := s.find(session.Mark{ID: c.Session, Number: c.Number})
		if call == nil {
			continue
		}
		bytes += call.bytes()
		s.remove(call)
		if call.w.finish() {
			c.Caller = call.Owner
			committed++
			q.timeApplied(call, now)
			q.Callers.Committed(c.Caller, call.appliedReceipt(c, now))
		}
	}
	if committed > 0 {
		s.refusals, s.frameMost, s.framesMost = 0, relaxed(s.frameMost), relaxed(s.framesMost)
	}
	q.committed += committed
	return bytes
}

// relaxed doubles a bound, which in the end is none.
func relaxed(bound int) int {
	if bound > MaxNumbers/2 {
		return 0
	}
	return 2 * bound
}

func (s *routedCalls) find(m session.Mark) *Call {
	if m.ID == s.id {
		if at := m.Number - s.base; at < uint64(len(s.window)) {
			return s.window[at]
		}
		return nil
	}
	return s.named[keyOf(m)]
}

// sweep removes the calls that were given up, and returns their bytes.
func (s *routedCalls) sweep() (bytes int64) {
	for _, list := range []*sched.Ring[*Call]{&s.again, &s.sent} {
		for p := list.First(); p != nil; {
			c := p.Owner
			p = p.Next()
			if !c.w.waits() {
				c.countWithdrawn()
				bytes += c.bytes()
				s.remove(c)
			}
		}
	}
	return bytes
}

// CanGo reports whether the group can do something with calls: propose or forward them.
func (q *Queue) CanGo(v View) bool {
	s := &q.calls
	switch {
	case v.Stands || v.Core.Lead == raft.None || s.paused(v):
		return false
	case v.Core.RaftState == raft.StateLeader:
		return true
	}
	return v.Core.Lead != v.Core.ID && s.n.Load() < int64(s.most)
}

// HasFresh reports whether the try of a call has ended since the latest look.
func (q *Queue) HasFresh() bool { return q.calls.n.Load() > 0 && q.calls.fresh.Load() }

func (s *routedCalls) paused(v View) bool {
	return v.Ticks < s.pausedUntil && v.Core.Commit+v.Core.Applied <= s.pausedAt
}

// Pause makes the group send nothing for some ticks, unless more is committed or applied, or the leader
// changes. The core refuses while too much is not applied yet.
func (q *Queue) Pause(v View, ticks int64) {
	q.calls.pausedUntil, q.calls.pausedAt = v.Ticks+ticks, v.Core.Commit+v.Core.Applied
}

// pauseRefused is Pause after a refusal. A leader may refuse for long, because its group is not founded or
// its disk hangs, and all calls that wait would be sent to it again and again. So after each refusal in a
// row the pause doubles, up to two heartbeat intervals, and then one frame asks (framesMost).
func (q *Queue) pauseRefused(v View, ticks int64) {
	s := &q.calls
	if s.paused(v) {
		return // a frame that was sent together with one that was refused before
	}
	q.Pause(v, min(ticks<<s.refusals, max(ticks, 2*q.HeartbeatTicks)))
	s.framesMost, s.refusals = 1, min(s.refusals+1, 4)
}

// CallsDue returns the tick of the next try, or turn.Never.
func (q *Queue) CallsDue(now int64) int64 {
	s := &q.calls
	if s.n.Load() == 0 {
		return turn.Never
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	due := turn.Never
	if s.again.Len() > 0 {
		due = max(now, s.pausedUntil-1) + 1
	}
	if s.sent.Len() > 0 {
		due = min(due, max(s.nextRetry, now+1))
	}
	return due
}
