package host

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
)

// The outcome of a call has two halves: Committed, which the turn tells, and the result, for which the call
// waits in the ring of proposalQueue. Calls with a number of a session may come back in an entry of another
// host, and are found by their number instead (routedCalls).

// findCallers connects commands that are applied now, in the order of the log, with the calls of this host
// that wait for them. It is for commands that were not applied before.
func (g *Group) findCallers(commands []statemachine.Command) {
	q := &g.proposals
	if len(commands) == 0 || q.ring.Unapplied() == 0 && q.calls.n.Load() == 0 {
		return
	}
	freed, routed := q.findCallers(commands, g.now())
	if routed > 0 {
		g.life.counts.callsCommitted.Add(routed)
	}
	if freed > 0 && g.inbox.hasProposals() {
		g.wake()
	}
}

// findCallers sets the callers of commands, and notes them until appliedBatch: if the group stops while the
// machine hangs, they are told. It returns the bytes that it releases, and how many calls were found by
// their number.
func (q *proposalQueue) findCallers(commands []statemachine.Command, now time.Duration) (freed int64, routed uint64) {
	q.mu.Lock()
	defer q.mu.Unlock() // also if a Caller ends this goroutine
	for i := range commands {
		c := &commands[i]
		switch call := q.take(c.Index, c.Term); {
		case call == nil || !call.w.waits():
		case call.Session == nil: // its commit is told by the turn
			c.Caller = call.Owner
		case call.w.finish():
			c.Caller = call.Owner
			call.group.tellCommitted(c.Caller, call.appliedReceipt(c, now))
		}
	}
	if q.calls.n.Load() > 0 {
		freed, routed = q.calls.takeCallers(commands, now)
		q.hold(-freed)
	}
	for i := range commands {
		if c := &commands[i]; c.Caller != nil {
			c.Handed = now
			q.applying = append(q.applying, c.Caller)
		}
	}
	return freed, routed
}

// take returns the call that waits for the result of an entry, which is applied now.
func (q *proposalQueue) take(index, term uint64) *Call {
	if w := q.ring.Take(index, term); w != nil {
		return w.call
	}
	return nil
}

// sent stamps the calls of entries through last that leave for the first time. It reads the clock once if a
// call waits.
func (q *proposalQueue) sent(last uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Duration(0)
	q.ring.Sent(last, func(w *waiter) {
		if now == 0 {
			now = q.clock()
		}
		w.call.replicated = now
	})
}

// appliedBatch must be called when the state machine has given their results to all callers that it got.
func (g *Group) appliedBatch() {
	q := &g.proposals
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.applying)
	q.applying = q.applying[:0]
}

// answerDuplicate tells the calls of this host that wait for an entry that their command was applied before.
func (g *Group) answerDuplicate(index, term uint64, m session.Mark, r outcome.Receipt, result []byte, kept bool) {
	for _, c := range g.callsOf(index, term, m) {
		if c != nil && c.w.finish() {
			g.tellDuplicate(c.Owner, r, result, kept)
		}
	}
}

// refuseCall tells the calls of this host that wait for an entry that the table of sessions has refused their
// command.
func (g *Group) refuseCall(index, term uint64, m session.Mark, err error) {
	for _, c := range g.callsOf(index, term, m) {
		if c != nil {
			c.fail(fmt.Errorf("%w (entry %d)", err, index))
		}
	}
}

// expireCall does the same if the session may be forgotten. If it is the session of this host's own, its
// calls get numbers of a new one: this host has applied all entries up to here, and none of them was one of
// the calls that still wait, and none that follows can be applied.
func (g *Group) expireCall(index, term uint64, m session.Mark, err error) {
	g.life.counts.expired.Add(1)
	if g.proposals.renew(m.ID) {
		g.wake()
		return
	}
	g.refuseCall(index, term, m, err)
}

// callsOf removes the calls that wait for an entry, and returns them: the one that this host has proposed as
// that entry, and one that waits for its number. They are two if a user hands in a command twice.
func (g *Group) callsOf(index, term uint64, m session.Mark) (calls [2]*Call) {
	q := &g.proposals
	if q.ring.Unapplied() == 0 && q.calls.n.Load() == 0 {
		return calls
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	calls[0] = q.take(index, term)
	if c := q.calls.find(m); c != nil {
		q.calls.remove(c)
		q.hold(-c.bytes())
		calls[1] = c
	}
	return calls
}

// overtaken ends the wait for results of commands through an index: a snapshot that has their effects was
// installed, and they are not applied here any more. For calls that go by their number in a session see
// Group.overtakeRouted.
func (q *proposalQueue) overtaken(through uint64) {
	var calls []*Call
	q.mu.Lock()
	q.ring.TakeThrough(through, func(w *waiter) { calls = append(calls, w.call) })
	q.mu.Unlock()
	for _, c := range calls {
		switch {
		case !c.w.waits():
		case c.w.finish(): // not told Committed: the table of sessions may have refused it
			c.group.tellFailed(c.Owner, errCovered(c.index))
		default:
			c.group.tellFailed(c.Owner, fmt.Errorf("%w: a snapshot that has its effect was installed", outcome.ErrNoResult))
		}
	}
}
