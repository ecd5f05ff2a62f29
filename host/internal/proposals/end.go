package proposals

import "github.com/millrace/millrace/host/outcome"

// endedCalls are calls and callers that must be told that they have ended.
type endedCalls struct {
	applied  []*Call          // that the state machine has got, though no turn has told their commit
	applying []outcome.Caller // of commands that are with the state machine
	results  []*Call          // that wait for results only
	lost     []lostCall       // the others
}

// lostCall is a call that must be told an error.
type lostCall struct {
	call *Call
	err  error
}

// Abandon answers all waiting clients, and later ones at once. A command that was not proposed has certainly
// not been committed; any other may have been. It may be called while a turn runs.
func (q *Queue) Abandon(cause error) { q.tellEnded(q.abandon(cause), cause) }

func (q *Queue) abandon(cause error) (e endedCalls) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return endedCalls{}
	}
	q.closed = cause
	was, offered := q.proposing.Swap(ended), []Proposal(nil)
	if was != unoffered { // otherwise they belong to the turn
		offered = q.offered
	}
	for i, p := range offered {
		err := outcome.WithCause(outcome.ErrStopped, cause)
		if int64(i) < was-offering {
			err = outcome.WithCause(outcome.ErrIndeterminate, cause)
		}
		held := int64(0)
		if p.Waiter.call != nil { // a plain command is counted when it is in the log
			held = p.Bytes()
		}
		q.endWaiter(&e, p.Waiter, err, held)
	}
	q.endRing(&e, outcome.WithCause(outcome.ErrIndeterminate, cause))
	q.endRouted(&e, outcome.WithCause(outcome.ErrStopped, cause), outcome.WithCause(outcome.ErrIndeterminate, cause))
	return e
}

// EndCalls ends all calls, and others may begin. It is part of a turn, and nothing is offered. why is for
// those that are certainly not committed.
func (q *Queue) EndCalls(why error) { q.tellEnded(q.endCalls(why), why) }

func (q *Queue) endCalls(why error) (e endedCalls) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Clock != nil {
		q.endRing(&e, outcome.WithCause(outcome.ErrIndeterminate, why))
		q.endRouted(&e, why, outcome.WithCause(outcome.ErrIndeterminate, why))
	}
	return e
}

func (q *Queue) endRing(e *endedCalls, unknown error) {
	e.applying, q.applying = q.applying, nil
	if p := &q.popped; p.pack != nil && p.told { // else the ring has them
		for _, w := range p.clients[p.next:] {
			e.results = append(e.results, w.call)
		}
	}
	q.popped.set(nil, 0)
	q.packs.Store(0)
	q.ring.End(func(w *Waiter, answered, _ bool) {
		w.each(func(w *Waiter, _ uint32) {
			switch {
			case answered:
				e.results = append(e.results, w.call)
			case w.call != nil && w.call.appliedIn > 0:
				q.hold(-int64(w.bytes))
				q.committed++
				e.applied = append(e.applied, w.call)
			default:
				q.endWaiter(e, w, unknown, int64(w.bytes))
			}
		})
	})
}

// endWaiter ends the wait for what happens to a command that holds some bytes.
func (q *Queue) endWaiter(e *endedCalls, w *Waiter, err error, bytes int64) {
	q.hold(-bytes)
	if w.call != nil {
		e.lost = append(e.lost, lostCall{w.call, err})
		return
	}
	q.Refusals.Add(err, 1)
	w.Answer(Settlement{Err: err})
}

// endRouted ends the calls that are not in the ring. One without a live try is certainly not committed.
func (q *Queue) endRouted(e *endedCalls, why, unknown error) {
	for p := q.calls.again.First(); p != nil; p = q.calls.again.First() {
		q.endCall(e, p.Owner, why)
	}
	for p := q.calls.sent.First(); p != nil; p = q.calls.sent.First() {
		q.endCall(e, p.Owner, unknown)
	}
}

func (q *Queue) endCall(e *endedCalls, c *Call, err error) {
	q.hold(-c.bytes())
	c.countWithdrawn()
	q.calls.remove(c)
	e.lost = append(e.lost, lostCall{c, err})
}

// tellEnded answers calls that have ended, because of why.
func (q *Queue) tellEnded(e endedCalls, why error) {
	for _, c := range e.applied {
		if c.w.finish() {
			q.Callers.Committed(c.Owner, outcome.Receipt{Index: c.index, Pos: c.pos, Term: c.appliedIn, Queued: c.queued, Appended: c.appended, Replicated: c.replicated})
		}
	}
	for _, c := range e.applying {
		q.Callers.Failed(c, outcome.WithCause(outcome.ErrNoResult, why))
	}
	for _, c := range e.results {
		if c.w.Answered() {
			q.Callers.Failed(c.Owner, outcome.WithCause(outcome.ErrNoResult, why))
		} else { // not told Committed: the table of sessions may refuse it
			c.fail(outcome.WithCause(outcome.ErrIndeterminate, why))
		}
	}
	for _, l := range e.lost {
		l.call.fail(l.err)
	}
}

// AnswerAll answers commands that no turn has taken, except those whose clients have given up.
func (q *Queue) AnswerAll(batch []Proposal, err error) {
	for _, p := range batch {
		switch c := p.Waiter.call; {
		case !p.Waiter.begin():
			q.Refusals.Withdrawn.Add(1)
		case c != nil:
			c.fail(err)
		default:
			q.Refusals.Add(err, 1)
			p.Waiter.Answer(Settlement{Err: err})
		}
	}
}
