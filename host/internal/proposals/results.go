package proposals

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// The outcome of a call has two halves: Committed, which the turn tells, and the result, for which the call
// waits in the ring of Queue. Calls with a number of a session may come back in an entry of another
// host, and are found by their number instead (routedCalls).

// FindCallers connects commands that are applied now, in the order of the log, with the calls of this host
// that wait for them. It is for commands that were not applied before.
func (q *Queue) FindCallers(commands []statemachine.Command) {
	if len(commands) > 0 && q.awaitsResults() && q.findCallers(commands, q.Clock()) > 0 {
		q.Freed()
	}
}

// awaitsResults reports whether a call waits for what is applied.
func (q *Queue) awaitsResults() bool {
	return q.ring.Unapplied() > 0 || q.popped.left.Load() > 0 || q.calls.n.Load() > 0
}

// findCallers sets the callers of commands, and notes them until Applied: if the group stops while the
// machine hangs, they are told. It returns the bytes that it releases.
func (q *Queue) findCallers(commands []statemachine.Command, now time.Duration) (freed int64) {
	q.mu.Lock()
	defer q.mu.Unlock() // also if a Caller ends this goroutine
	for i := range commands {
		c := &commands[i]
		switch call := q.pop(c.Position(), c.Term); {
		case call == nil || !call.w.waits():
		case call.Session == nil: // its commit is told by the turn, with pipeline.Basic afterwards
			c.Caller, call.appliedIn = call.Owner, c.Term
			if q.times != nil {
				q.times.Applied.Add(now - call.queued)
			}
		case call.w.finish():
			c.Caller = call.Owner
			q.timeApplied(call, now)
			q.Callers.Committed(c.Caller, call.appliedReceipt(c, now))
		}
	}
	if q.calls.n.Load() > 0 {
		freed = q.claimCallers(commands, now)
		q.hold(-freed)
	}
	for i := range commands {
		if c := &commands[i]; c.Caller != nil {
			c.Handed = now
			q.applying = append(q.applying, c.Caller)
		}
	}
	return freed
}

// timeApplied counts the times of a call that learns its commit when it is applied.
func (q *Queue) timeApplied(call *Call, now time.Duration) {
	if q.times != nil {
		q.times.Committed.Add(now - call.queued)
		q.times.Applied.Add(now - call.queued)
	}
}

// popped is the entry with several commands of which some are applied: its clients have left the ring.
type popped struct {
	*pack // nil: none
	index uint64
	next  uint32       // the first pos that is not applied
	left  atomic.Int64 // clients behind it; 0 spares the apply lane the lock
}

func (p *popped) set(clients *pack, index uint64) {
	p.pack, p.index, p.next = clients, index, 0
	p.leave()
}

// leave publishes what is left, and forgets an entry of which nothing is.
func (p *popped) leave() {
	if p.pack != nil && int(p.next) >= len(p.clients) {
		p.pack = nil
	}
	if p.left.Store(0); p.pack != nil {
		p.left.Store(int64(len(p.clients)) - int64(p.next))
	}
}

// pop returns the call that waits for the result of a command, which is applied now, as all before it are.
func (q *Queue) pop(at raftpb.Position, term uint64) (call *Call) {
	p := &q.popped
	if p.pack == nil || p.index != at.Index {
		switch w := q.ring.Pop(at.Index, term); {
		case w == nil:
			return nil
		case w.pack == nil:
			return w.call
		default:
			p.set(w.pack, at.Index)
		}
	}
	if at.Pos >= p.next && int(at.Pos) < len(p.clients) {
		call = p.clients[at.Pos].call
		p.next = at.Pos + 1
		p.leave()
	}
	return call
}

// Sent stamps the calls of entries through last that leave for the first time. It reads the clock once if a
// call waits.
func (q *Queue) Sent(last uint64) {
	if q.ring.Unapplied() == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Duration(0)
	q.ring.Sent(last, func(w *Waiter) {
		if now == 0 {
			now = q.Clock()
		}
		w.each(func(w *Waiter, _ uint32) {
			w.call.replicated = now
			if q.times != nil {
				q.times.Replicated.Add(now - w.call.queued)
			}
		})
	})
}

// Applied must be called when the state machine has given their results to all callers of a batch.
func (q *Queue) Applied(commands []statemachine.Command) {
	if !slices.ContainsFunc(commands, func(c statemachine.Command) bool { return c.Caller != nil }) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.applying)
	q.applying = q.applying[:0]
}

// AnswerDuplicate tells the calls of this host that wait for an entry that their command was applied before.
func (q *Queue) AnswerDuplicate(at raftpb.Position, term uint64, m session.Mark, r outcome.Receipt, result []byte, kept bool) {
	for _, c := range q.callsOf(at, term, m) {
		if c != nil && c.w.finish() {
			q.Callers.Duplicate(c.Owner, r, result, kept)
		}
	}
}

// RefuseCall tells the calls of this host that wait for an entry that the table of sessions has refused their
// command.
func (q *Queue) RefuseCall(at raftpb.Position, term uint64, m session.Mark, err error) {
	for _, c := range q.callsOf(at, term, m) {
		if c != nil {
			c.fail(fmt.Errorf("%w (entry %v)", err, at))
		}
	}
}

// ExpireCall does the same if the session may be forgotten. If it is the session of this host's own, its
// calls get numbers of a new one. This host has applied all entries up to here, and none of them was one of
// the calls that still wait. No later entry of the session can be applied.
func (q *Queue) ExpireCall(at raftpb.Position, term uint64, m session.Mark, err error) {
	q.expired.Add(1)
	if q.renew(m.ID) {
		q.Wake()
		return
	}
	q.RefuseCall(at, term, m, err)
}

// RefuseApplied tells the calls of this host that wait for an entry that it was refused when it was applied.
// A call that was told its commit is told again.
func (q *Queue) RefuseApplied(at raftpb.Position, term uint64, m session.Mark, why error) {
	for _, c := range q.callsOf(at, term, m) {
		if c != nil && c.w.waits() {
			if c.w.finish() {
				q.Refusals.Add(why, 1)
			}
			q.Callers.Failed(c.Owner, fmt.Errorf("%w (entry %v)", why, at))
		}
	}
}

// AnswerApplied answers the calls of this host that wait for an entry that no machine gets.
func (q *Queue) AnswerApplied(at raftpb.Position, term uint64, m session.Mark) {
	for _, c := range q.callsOf(at, term, m) {
		if c != nil && c.w.finish() {
			q.Callers.Committed(c.Owner, outcome.Receipt{Index: at.Index, Pos: at.Pos, Term: term})
		}
	}
}

// callsOf removes the calls that wait for an entry, and returns them: the one that this host has proposed as
// that entry, and one that waits for its number. They are two if a user hands in a command twice.
func (q *Queue) callsOf(at raftpb.Position, term uint64, m session.Mark) (calls [2]*Call) {
	if !q.awaitsResults() {
		return calls
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	calls[0] = q.pop(at, term)
	if c := q.calls.find(m); c != nil {
		q.calls.remove(c)
		q.hold(-c.bytes())
		calls[1] = c
	}
	return calls
}

// Overtaken ends the wait for results of commands through an index: a snapshot that has their effects was
// installed, and they are not applied here any more. For calls that go by their number in a session see
// OvertakeRouted.
func (q *Queue) Overtaken(through uint64) {
	var calls []*Call
	q.mu.Lock()
	if p := &q.popped; p.pack != nil && p.index <= through { // the ring has popped its entry already
		for _, w := range p.clients[p.next:] {
			calls = append(calls, w.call)
		}
		p.set(nil, 0)
	}
	q.ring.PopThrough(through, func(w *Waiter) {
		w.each(func(w *Waiter, _ uint32) { calls = append(calls, w.call) })
	})
	q.mu.Unlock()
	for _, c := range calls {
		if !c.w.Answered() { // not told Committed: the table of sessions may have refused it
			c.fail(errCovered(c.index))
		} else {
			q.Callers.Failed(c.Owner, fmt.Errorf("%w: a snapshot that has its effect was installed", outcome.ErrNoResult))
		}
	}
}

// OvertakeRouted ends the calls whose commands the table of a snapshot has, which was installed: their
// entries are not applied here any more. A call of this host's own session that was sent, and that the
// table may have forgotten, ends without a known outcome. The others were not applied before the snapshot.
// So what this host applies from now on tells their outcome (ExpireCall). refused returns the outcome of a
// copy of a command that the entry at an index refused.
func (q *Queue) OvertakeRouted(t *session.Table, refused func(at raftpb.Position) error) {
	type ended struct {
		call  *Call
		first session.Record
		known bool
	}
	var all []ended
	var bytes int64
	s := &q.calls
	q.mu.Lock()
	for _, list := range []*sched.Ring[*Call]{&s.again, &s.sent} {
		for p := list.First(); p != nil; {
			c := p.Owner
			p = p.Next()
			m := session.Mark{ID: s.id, Number: c.number}
			if c.Session != nil {
				m = *c.Session
			}
			if m.Number == 0 {
				continue // it was in no log under a number
			}
			first, known := t.Lookup(m.ID, m.Number)
			if known || list == &s.sent && c.Session == nil && t.MayHaveForgotten(m.ID) {
				bytes += c.bytes()
				s.remove(c)
				all = append(all, ended{c, first, known})
			}
		}
	}
	q.hold(-bytes)
	q.mu.Unlock()
	for _, e := range all {
		switch {
		case !e.known:
			e.call.fail(fmt.Errorf("%w: a snapshot was installed that does not know its session any more", outcome.ErrIndeterminate))
		case e.first.Refused:
			e.call.fail(refused(raftpb.Position{Index: e.first.Index, Pos: e.first.Pos}))
		case e.call.w.finish():
			q.Callers.Duplicate(e.call.Owner, outcome.Receipt{Index: e.first.Index, Pos: e.first.Pos, Term: e.first.Term}, e.first.Result, e.first.Kept)
		}
	}
	if bytes > 0 {
		q.Freed()
	}
}
