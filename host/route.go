package host

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/host/internal/proposals"
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
	plain  []proposal
}

// maxForwardBytes is about the size of a body with several forwarded commands. A larger command travels
// alone, as bulk, so that small ones and reads do not wait for it. A frame also fits into a quarter of the
// memory for commands that wait, if it has more than one.
const maxForwardBytes = 60 << 10

// routeCalls sends the calls that can go on.
func (g *Group) routeCalls() {
	q := &g.proposals
	s := &q.calls
	if s.n.Load() == 0 {
		return
	}
	st := g.core.node.BasicStatus()
	q.mu.Lock()
	s.fresh.Store(false)
	if s.withdrawn.Swap(0) > 0 {
		q.hold(-s.sweep())
	}
	changed := s.lead != st.Lead || s.term != st.Term
	if s.lead, s.term = st.Lead, st.Term; changed {
		s.pausedUntil, s.framesMost, s.refusals = 0, 0, 0
	}
	switch {
	case g.writes.discarding.waitsForLane || st.Lead == raft.None || s.paused(g.core.at.ticks, st):
	case st.RaftState != raft.StateLeader && st.Lead != g.self:
		g.forwardCalls(st.Lead, st.Term, changed)
	case st.RaftState == raft.StateLeader && g.members.founding.TakesCommands():
		g.proposeMarked(st.Term, changed)
		g.takePlain()
	}
	q.mu.Unlock()
	if plain := g.proposals.router.plain; len(plain) > 0 {
		g.proposals.router.plain = nil
		q.offerAgain(plain)
		g.proposeAll()
		clear(plain)
		g.proposals.router.plain = plain[:0]
	}
}

// isDue reports whether a call that has a live try must be sent again.
func (c *Call) isDue(now int64, changed bool) bool { return changed || now >= c.retryAt }

// callsDue returns the tick of the next try.
func (q *proposalQueue) callsDue(now int64) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := &q.calls
	due := never
	if s.again.Len() > 0 {
		due = max(now, s.pausedUntil-1) + 1
	}
	if s.sent.Len() > 0 {
		due = min(due, max(s.nextRetry, now+1))
	}
	return due
}

// noteTry notes that a try of a call is under way.
func (g *Group) noteTry(c *Call, frame uint64) {
	s := &g.proposals.calls
	c.live++
	c.frame = frame
	if c.tries > 0 {
		g.life.counts.retried.Add(1)
	}
	c.retryAt = g.core.at.ticks + int64(g.host.config.electionTicks())<<min(c.tries, maxBackoff)
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
	s.nextRetry = never
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

// forwardCalls sends the calls that are due to the leader, in as many frames as it may be sent.
func (g *Group) forwardCalls(to, term uint64, changed bool) {
	s, r := &g.proposals.calls, &g.proposals.router
	g.beginFrame(term)
	frames := 1
	sends := func(c *Call) bool {
		m, ok := s.mark(g, c)
		if !ok {
			return true
		}
		if c.live == 0 && !c.w.take() {
			return true // it was given up
		}
		full := len(r.body)+len(c.Data)+proposals.MaxSizeBytes > maxForwardBytes || r.bytes+c.bytes() > g.host.memory.waiting.Max/4 ||
			s.frameMost > 0 && len(r.batch) >= s.frameMost
		if len(r.batch) > 0 && (full || c.alone || r.batch[0].alone) {
			if !g.sendFrame(to, term) || frames == s.framesMost {
				if c.live == 0 {
					c.w.putBack()
				}
				return false
			}
			frames++
		}
		r.body = proposals.AppendCommand(r.body, session.Header{Mark: m, HasMark: true}, c.Data[CallRoom:])
		r.batch, r.bytes = append(r.batch, c), r.bytes+c.bytes()
		return true
	}
	if !s.eachDue(g.core.at.ticks, changed, sends) {
		return
	}
	for p := s.again.First(); p != nil; {
		c := p.Owner
		p = p.Next()
		if c.w.waits() && !sends(c) {
			return
		}
	}
	g.sendFrame(to, term)
}

// beginFrame begins the next body.
func (g *Group) beginFrame(term uint64) {
	r := &g.proposals.router
	clear(r.batch)
	r.batch, r.bytes = r.batch[:0], 0
	r.number = g.host.nextFrame()
	r.body = proposals.AppendForward(r.body[:0], proposals.Forward{Group: g.id, Term: term, Frame: r.number})
}

// sendFrame sends the body, and begins another. If the transport refuses it, its calls are as they were, and
// the group pauses.
func (g *Group) sendFrame(to, term uint64) (sent bool) {
	r := &g.proposals.router
	if len(r.batch) == 0 {
		return true
	}
	kind := transport.Control
	if len(r.body) > maxForwardBytes {
		kind = transport.Bulk
	}
	if g.host.network.transport.SendBytes(to, kind, r.body) {
		g.life.counts.forwarded.Add(uint64(len(r.batch)))
		for _, c := range r.batch {
			g.noteTry(c, r.number)
		}
		g.beginFrame(term)
		return true
	}
	for _, c := range r.batch {
		if c.live == 0 {
			c.w.putBack()
		}
	}
	g.beginFrame(term) // no command of this body may leave in the next one: its try is not counted
	g.pauseCalls(1)
	return false
}

// proposeMarked proposes the calls that may be in a log already and are due, with their numbers.
func (g *Group) proposeMarked(term uint64, changed bool) {
	s := &g.proposals.calls
	var entries []raftpb.Entry
	var batch []*Call
	bytes := 0
	s.eachDue(g.core.at.ticks, changed, func(c *Call) bool {
		m, ok := s.mark(g, c)
		if !ok {
			return true
		}
		h := session.Header{Mark: m, HasMark: true}
		h.Stamp, h.HasStamp = g.stamp(len(entries) == 0)
		data := append([]byte(nil), c.Data...) // a log may have its bytes
		entries, batch = append(entries, raftpb.Entry{Data: h.Put(data)}), append(batch, c)
		bytes += len(data)
		return bytes < g.config.MaxAppendBytes
	})
	if len(entries) == 0 {
		return
	}
	switch _, err := g.proposeEntries(entries); {
	case errors.Is(err, raft.ErrProposalDropped):
		s.nextRetry = g.core.at.ticks + 1
		for _, c := range batch {
			c.retryAt = s.nextRetry
		}
		g.pauseCalls(1)
	case err == nil:
		for _, c := range batch {
			g.noteTry(c, 0)
		}
	}
}

// takePlain takes the calls without a live try, to propose them without a number.
func (g *Group) takePlain() {
	s := &g.proposals.calls
	for p := s.again.First(); p != nil; {
		c := p.Owner
		p = p.Next()
		s.remove(c)
		c.frame, c.tries = 0, 0
		g.proposals.router.plain = append(g.proposals.router.plain, proposal{waiter: &c.w})
	}
}

// takeRefusals takes the answers of leaders that have refused a forward frame.
func (g *Group) takeRefusals() {
	q := &g.proposals
	s := &q.calls
	if len(g.work.taken.refusals) == 0 || s.n.Load() == 0 {
		return
	}
	var failed []*Call
	q.mu.Lock()
	for _, r := range g.work.taken.refusals {
		pause := int64(1)
		if r.Why == proposals.NoLeader {
			pause = ticksPerHeartbeat // this host will hear of the new leader
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
				c.retryAt = g.core.at.ticks + pause
				s.nextRetry = min(s.nextRetry, c.retryAt)
			case r.Why == proposals.TooLarge && c.alone:
				q.hold(-c.bytes())
				s.remove(c)
				failed = append(failed, c)
			case c.w.putBack():
				c.live = 0
				c.alone = r.Why == proposals.TooLarge
				c.place.Leave()
				s.again.Push(&c.place)
			}
		}
		if hits > 1 && r.Why == proposals.NoSpace {
			s.frameMost = hits / 2
		}
		if hits > 0 {
			g.pauseRefused(pause)
		}
	}
	q.mu.Unlock()
	for _, c := range failed {
		c.fail(fmt.Errorf("%w: %d bytes, which this host allows and the leader does not; set the same MaxCommandBytes and MemoryBytes for all members", outcome.ErrTooLarge, len(c.Data)-CallRoom))
	}
}
