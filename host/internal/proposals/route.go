package proposals

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/internal/turn"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// router is the scratch memory of a group that routes calls. It belongs to the turn.
type router struct {
	number uint64 // of the frame
	body   []byte
	batch  []*Call // in body
	bytes  int64   // that they take at the other host, until its turn
	plain  []Proposal
}

// MaxForwardBytes is about the size of a body with several forwarded commands. A larger command travels
// alone, as bulk, so that small ones and reads do not wait for it. A frame also fits into a quarter of the
// memory for commands that wait, if it has more than one.
const MaxForwardBytes = 60 << 10

// View is what a turn knows that decides where calls go.
type View struct {
	Ticks  int64 // of the core's clock
	Core   raft.BasicStatus
	Stands bool // the core may be forgotten, so nothing goes to it or leaves
}

// Turn is the turn of a group, as calls ask it to carry out what they want.
type Turn interface {
	View() View
	TakesCommands() bool
	// Stamp returns the stamp of an entry, if it is the first of its batch and one is due.
	Stamp(first bool) (stamp time.Duration, due bool)
	// Propose proposes entries with one command each, all or none. Some may share an entry then.
	Propose(entries []raftpb.Entry) error
	// ProposeOffered proposes what the queue offers (Next).
	ProposeOffered()
	NextFrame() uint64
	Send(to uint64, kind transport.Kind, body []byte) bool
}

// Route sends the calls that can go on.
func (q *Queue) Route(t Turn) {
	s := &q.calls
	if s.n.Load() == 0 {
		return
	}
	if plain := q.route(t, t.View()); len(plain) > 0 {
		s.router.plain = nil
		q.offerAgain(plain)
		t.ProposeOffered()
		clear(plain)
		s.router.plain = plain[:0]
	}
}

// route returns those that this host proposes as plain entries.
func (q *Queue) route(t Turn, v View) (plain []Proposal) {
	s := &q.calls
	q.mu.Lock()
	defer q.mu.Unlock()
	s.fresh.Store(false)
	if s.withdrawn.Swap(0) > 0 {
		q.hold(-s.sweep())
	}
	changed := s.lead != v.Core.Lead || s.term != v.Core.Term
	if s.lead, s.term = v.Core.Lead, v.Core.Term; changed {
		s.pausedUntil, s.framesMost, s.refusals = 0, 0, 0
	}
	switch {
	case v.Stands || v.Core.Lead == raft.None || s.paused(v):
	case v.Core.RaftState != raft.StateLeader && v.Core.Lead != v.Core.ID:
		q.forward(t, v, changed)
	case v.Core.RaftState == raft.StateLeader && t.TakesCommands():
		q.proposeMarked(t, v, changed)
		s.claimPlain()
	}
	return s.router.plain
}

// isDue reports whether a call that has a live try must be sent again.
func (c *Call) isDue(now int64, changed bool) bool { return changed || now >= c.retryAt }

// recordTry notes that a try of a call is under way.
func (q *Queue) recordTry(c *Call, v View, frame uint64) {
	s := &q.calls
	c.live++
	c.frame = frame
	if c.tries > 0 {
		q.retried.Add(1)
	}
	c.retryAt = v.Ticks + q.ElectionTicks<<min(c.tries, maxBackoff)
	c.tries++
	s.nextRetry = min(s.nextRetry, c.retryAt)
	c.place.Leave()
	s.sent.Push(&c.place)
}

// eachDue calls f for each call with a live try that must be sent again, until f returns false. It reports
// whether f never did.
func (s *routedCalls) eachDue(now int64, changed bool, f func(*Call) bool) (going bool) {
	going = true
	if !changed && now < s.nextRetry {
		return going
	}
	s.nextRetry = turn.Never
	p := s.sent.First()
	for n := s.sent.Len(); n > 0; n-- { // f moves a call to the end
		c := p.Owner
		p = p.Next()
		if going && c.isDue(now, changed) {
			going = f(c)
		}
		s.nextRetry = min(s.nextRetry, max(c.retryAt, now+1))
	}
	return going
}

// forward sends the calls that are due to the leader, in as many frames as it may be sent.
func (q *Queue) forward(t Turn, v View, changed bool) {
	s, r := &q.calls, &q.calls.router
	q.beginFrame(t, v)
	frames := 1
	sends := func(c *Call) bool {
		m, ok := q.mark(c)
		if !ok {
			return true
		}
		if c.live == 0 && !c.w.begin() {
			return true // it was given up
		}
		full := len(r.body)+len(c.Data)+MaxSizeBytes > MaxForwardBytes || r.bytes+c.bytes() > q.FrameBytes ||
			s.frameMost > 0 && len(r.batch) >= s.frameMost
		if len(r.batch) > 0 && (full || c.alone || r.batch[0].alone) {
			if !q.sendFrame(t, v) || frames == s.framesMost {
				if c.live == 0 {
					c.w.requeue()
				}
				return false
			}
			frames++
		}
		r.body = AppendCommand(r.body, session.Header{Mark: m, HasMark: true}, c.Data[session.Room:])
		r.batch, r.bytes = append(r.batch, c), r.bytes+c.bytes()
		return true
	}
	if !s.eachDue(v.Ticks, changed, sends) {
		return
	}
	for p := s.again.First(); p != nil; {
		c := p.Owner
		p = p.Next()
		if c.w.waits() && !sends(c) {
			return
		}
	}
	q.sendFrame(t, v)
}

// beginFrame begins the next body.
func (q *Queue) beginFrame(t Turn, v View) {
	r := &q.calls.router
	clear(r.batch)
	r.batch, r.bytes = r.batch[:0], 0
	r.number = t.NextFrame()
	r.body = AppendForward(r.body[:0], Forward{Group: q.Group, Term: v.Core.Term, Frame: r.number})
}

// sendFrame sends the body, and begins another. If the transport refuses it, its calls are as they were, and
// the group pauses.
func (q *Queue) sendFrame(t Turn, v View) (sent bool) {
	r := &q.calls.router
	if len(r.batch) == 0 {
		return true
	}
	kind := transport.Control
	if len(r.body) > MaxForwardBytes {
		kind = transport.Bulk
	}
	if t.Send(v.Core.Lead, kind, r.body) {
		q.forwarded.Add(uint64(len(r.batch)))
		for _, c := range r.batch {
			q.recordTry(c, v, r.number)
		}
		q.beginFrame(t, v)
		return true
	}
	for _, c := range r.batch {
		if c.live == 0 {
			c.w.requeue()
		}
	}
	q.beginFrame(t, v) // no command of this body may leave in the next one: its try is not counted
	q.Pause(v, 1)
	return false
}

// proposeMarked proposes the calls that may be in a log already and are due, with their numbers.
func (q *Queue) proposeMarked(t Turn, v View, changed bool) {
	s := &q.calls
	var entries []raftpb.Entry
	var batch []*Call
	bytes := 0
	s.eachDue(v.Ticks, changed, func(c *Call) bool {
		m, ok := q.mark(c)
		if !ok {
			return true
		}
		h := session.Header{Mark: m, HasMark: true}
		h.Stamp, h.HasStamp = t.Stamp(len(entries) == 0)
		data := append([]byte(nil), c.Data...) // a log may have its bytes
		entries, batch = append(entries, raftpb.Entry{Data: h.Put(data)}), append(batch, c)
		bytes += len(data)
		return bytes < q.MaxBytes
	})
	if len(entries) == 0 {
		return
	}
	switch err := t.Propose(entries); {
	case errors.Is(err, raft.ErrProposalDropped):
		s.nextRetry = v.Ticks + 1
		for _, c := range batch {
			c.retryAt = s.nextRetry
		}
		q.Pause(v, 1)
	case err == nil:
		for _, c := range batch {
			q.recordTry(c, v, 0)
		}
	}
}

// claimPlain claims the calls without a live try, to propose them without a number.
func (s *routedCalls) claimPlain() {
	for p := s.again.First(); p != nil; {
		c := p.Owner
		p = p.Next()
		s.remove(c)
		c.frame, c.tries = 0, 0
		s.router.plain = append(s.router.plain, Proposal{Waiter: &c.w})
	}
}

// Entry returns the data of the entry with which a proposal of a call is proposed, without a number of the
// group's own session.
func (p Proposal) Entry(stamp time.Duration, due bool) []byte {
	c, h := p.Waiter.call, session.Header{Stamp: stamp, HasStamp: due}
	if c.Session != nil {
		h.Mark, h.HasMark = *c.Session, true
	}
	data := c.Data
	if c.shared {
		data = append([]byte(nil), data...)
	}
	c.shared = true
	return h.Put(data)
}

// ReceiveRefusals receives the answers of leaders that have refused a forward frame.
func (q *Queue) ReceiveRefusals(t Turn, refusals []Refusal) {
	s := &q.calls
	if len(refusals) == 0 || s.n.Load() == 0 {
		return
	}
	v := t.View()
	var failed []*Call
	q.mu.Lock()
	for _, r := range refusals {
		pause := int64(1)
		if r.Why == NoLeader {
			pause = q.HeartbeatTicks // this host will hear of the new leader
		}
		hits := 0
		for p := s.sent.First(); p != nil; {
			c := p.Owner
			p = p.Next()
			if c.frame != r.Frame {
				continue
			}
			hits++
			c.frame = 0
			if r.Sure {
				c.live--
			}
			switch {
			case c.live > 0:
				c.retryAt = v.Ticks + pause
				s.nextRetry = min(s.nextRetry, c.retryAt)
			case r.Why == TooLarge && c.alone:
				q.hold(-c.bytes())
				s.remove(c)
				failed = append(failed, c)
			case c.w.requeue():
				c.live = 0
				c.alone = r.Why == TooLarge
				c.place.Leave()
				s.again.Push(&c.place)
			}
		}
		if hits > 1 && r.Why == NoSpace {
			s.frameMost = hits / 2
		}
		if hits > 0 {
			q.pauseRefused(v, pause)
		}
	}
	q.mu.Unlock()
	for _, c := range failed {
		c.fail(fmt.Errorf("%w: %d bytes, which this host allows and the leader does not; set the same MaxCommandBytes and MemoryBytes for all members", outcome.ErrTooLarge, len(c.Data)-session.Room))
	}
}
