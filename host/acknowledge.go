package host

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
)

// proposalQueue holds the clients of this host whose commands a turn has taken, until they know everything:
//
//	offered      by a turn to the core, which takes them in batches
//	ring         in the log, by index: what happens to the entry, and the result of a call
//	calls        on their way to another host, or in the log under a number of a session (routedcalls.go)
//
// A client that waits in the ring may outlive the leadership in which it proposed, but not for long
// (proposals.Ring). The group's turn fills the queue and answers for what is committed. An apply lane takes
// the calls of what it applies (results.go). Close answers all clients from another goroutine, since the
// turn may hang on a disk forever. Each method is one atomic step under mu. An owner of a call is told
// under mu, too: it hears of one call from one goroutine at a time. Locks that come before mu: none.
// Behind it: those of the clock of the log (apply.LogTime) and of the transport.
type proposalQueue struct {
	budget   *budget.Budget
	maxBytes int                  // about the size of a batch
	clock    func() time.Duration // of a group with calls; else nil

	mu        sync.Mutex
	closed    error      // not nil: all clients were answered, and new ones are answered at once
	offered   []proposal // of the group's turn, not proposed yet; the turn alone writes it
	ring      proposals.Ring[*waiter]
	calls     routedCalls
	applying  []outcome.Caller // of the commands that are with the state machine
	at        time.Duration    // when the latest commit was seen,
	by        uint64           // and who completed its quorum
	committed uint64           // proposals that got a receipt

	// A turn stores how many of offered it proposes, and then looks whether the queue has ended. abandon does
	// both the other way round. So no command is proposed whose client was told that it is not.
	proposing atomic.Int64
	ended     atomic.Bool // closed is set

	bytes    atomic.Int64            // of all that is in the log or in calls, with overhead; changed under mu
	refusals proposals.RefusalCounts // any goroutine may count here

	// Owned by the turn.
	oldest   uint64 // no client of an earlier term waits for its answer in the ring
	answered uint64 // all clients through this commit index are answered
}

// offer takes the commands of one turn, except those whose clients have given up. Otherwise, under overload,
// commands that no client waits for any more would fill the log. The first of them came at since. offer
// reuses the slice.
func (q *proposalQueue) offer(batch []proposal, since time.Duration) {
	if len(batch) == 0 {
		return
	}
	kept, callBytes := batch[:0], int64(0)
	for _, p := range batch {
		if p.waiter.take() {
			kept = append(kept, p)
			if c := p.waiter.call; c != nil {
				c.queued = since
				callBytes += p.bytes()
			}
		}
	}
	if n := len(batch) - len(kept); n > 0 {
		q.refusals.Withdrawn.Add(uint64(n))
	}
	clear(batch[len(kept):])
	q.mu.Lock()
	defer q.mu.Unlock()
	q.hold(callBytes)
	q.setOffered(kept)
}

// offerAgain takes calls whose tries have surely ended, and which are counted already. Nothing else is
// offered then.
func (q *proposalQueue) offerAgain(batch []proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := batch[:0]
	for _, p := range batch {
		if p.waiter.take() {
			kept = append(kept, p)
		} else {
			q.hold(-p.bytes())
		}
	}
	q.setOffered(kept)
}

func (q *proposalQueue) setOffered(batch []proposal) {
	q.offered = batch
	q.proposing.Store(0)
	if q.closed != nil {
		q.refuseFirst(batch, wrap(outcome.ErrStopped, q.closed))
	}
}

// next returns the next commands to propose, about maxBytes at most, or none when all were proposed or
// answered. The caller must then call accept or refuse. It takes no lock, unless the queue has ended.
func (q *proposalQueue) next() (batch []proposal) {
	if batch = q.nextBatch(); !q.ended.Load() {
		return batch
	}
	q.mu.Lock() // abandon may still answer them
	defer q.mu.Unlock()
	q.offered = nil
	return nil
}

func (q *proposalQueue) nextBatch() (batch []proposal) {
	n, bytes := 0, 0
	for n < len(q.offered) && (n == 0 || bytes+q.offered[n].size() <= q.maxBytes) {
		bytes += q.offered[n].size()
		n++
	}
	q.proposing.Store(int64(n))
	return q.offered[:n]
}

// refuse answers a batch of next that the core has not taken, and is next.
func (q *proposalQueue) refuse(batch []proposal, err error) (next []proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		q.offered = nil // answered
		return nil
	}
	q.refuseFirst(batch, err)
	return q.nextBatch()
}

// refuseFirst answers the first of the commands that are offered.
func (q *proposalQueue) refuseFirst(batch []proposal, err error) {
	for _, p := range batch {
		if p.waiter.call == nil {
			q.refusals.Add(err, 1)
			p.waiter.answer(settlement{err: err})
		} else if bytes := p.bytes(); !q.answerCall(p.waiter.call, settlement{err: err}) {
			q.hold(-bytes)
		}
	}
	q.offered = q.offered[len(batch):]
	q.proposing.Store(0)
}

// accept registers that a batch of next is in the log as entries of term, starting at index, and is next.
func (q *proposalQueue) accept(term, index uint64, batch []proposal) (next []proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		q.offered = nil // answered
		return nil
	}
	q.offered = q.offered[len(batch):]
	q.proposing.Store(0)
	q.oldest = min(q.oldest, term)
	q.put(term, index, batch)
	return q.nextBatch()
}

// put registers the clients of the entries of a term, starting at index.
func (q *proposalQueue) put(term, index uint64, batch []proposal) {
	bytes, now := int64(0), time.Duration(0)
	if q.clock != nil {
		now = q.clock()
	}
	places := q.ring.Put(term, index, len(batch))
	for i, p := range batch {
		held := p.bytes()
		places[i], p.waiter.bytes = p.waiter, uint32(held)
		if c := p.waiter.call; c == nil {
			bytes += held
		} else { // it is counted since its first turn
			c.index, c.appended = index+uint64(i), now
		}
	}
	q.hold(bytes)
}

// hold counts bytes of proposals; less than 0 gives them back.
func (q *proposalQueue) hold(bytes int64) {
	if bytes != 0 {
		q.bytes.Add(bytes)
		q.budget.Hold(bytes)
	}
}

// space returns how many bytes more this group may hold.
func (q *proposalQueue) space() int64 { return q.budget.Max - q.budget.Used() - q.bytes.Load() }

// hasSpace reports whether the budget has bytes more for this group.
func (q *proposalQueue) hasSpace(bytes int64) bool { return q.budget.Fits(q.bytes.Load(), bytes) }

// severalWait reports whether more than one client waits for a commit.
func (q *proposalQueue) severalWait() bool { return q.ring.Unanswered() > 1 }

// counts returns how many commands got a receipt, and the bytes of those that are pending.
func (q *proposalQueue) counts() (committed uint64, bytes int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.committed, q.bytes.Load()
}

// shrink releases memory, if no client waits.
func (q *proposalQueue) shrink() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ring.Shrink()
}

// answerCommitted answers the clients through the last of the entries, which are committed: with a receipt
// if the entry is theirs, with ErrDropped if another leader's entry took its place. A client below the
// first of them was skipped because a snapshot covers its index. No entry at that index was seen here, so
// the answer is ErrIndeterminate. The member by completed the quorum; 0 if that is not known.
func (q *proposalQueue) answerCommitted(committed []raftpb.Entry, by uint64) {
	if len(committed) == 0 || q.ring.Unanswered() == 0 {
		return
	}
	first, last := committed[0].Index, committed[len(committed)-1].Index
	q.atCommit(by, func() {
		q.ring.Answer(last, func(index uint64) (term uint64, ok bool) {
			if index < first {
				return 0, false
			}
			return committed[index-first].Term, true
		}, q.answer)
	})
}

// answerOwn answers the clients of the leader of term, for everything up to the commit index.
func (q *proposalQueue) answerOwn(term, commit, by uint64) {
	if commit > q.answered && q.ring.Unanswered() > 0 {
		q.atCommit(by, func() { q.ring.AnswerOwn(term, commit, q.answer) })
	}
}

// answerByTerm answers every client up to the commit index by what the log has there. If the log does not
// know the entry any more, a snapshot covers it, and the outcome is indeterminate. A host that leads in the
// term own need not look at its own entries; 0 if it does not lead.
func (q *proposalQueue) answerByTerm(own, commit, by uint64, termAt func(index uint64) (term uint64, ok bool)) {
	if commit <= q.answered || q.ring.Unanswered() == 0 {
		return
	}
	q.atCommit(by, func() {
		q.ring.AnswerOwn(own, commit, q.answer)
		q.ring.Answer(commit, termAt, q.answer)
	})
	q.answered = commit
}

// atCommit calls f under mu, to answer for what is committed now.
func (q *proposalQueue) atCommit(by uint64, f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.clock != nil {
		q.at, q.by = q.clock(), by
	}
	f()
	q.oldest = q.ring.Oldest()
}

// dropDeposed answers with ErrDropped the clients that a leader of an earlier term than the core's has left
// and whose entries can no longer be committed (proposals.Ring.Drop).
func (q *proposalQueue) dropDeposed(commit, commitTerm uint64, termAt func(index uint64) (term uint64, ok bool)) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ring.Drop(commit, commitTerm, termAt, func(w *waiter) { q.tell(w, settlement{err: outcome.ErrDropped}) })
	q.oldest = q.ring.Oldest()
}

// answer tells a client what happened to its entry.
func (q *proposalQueue) answer(w *waiter, index, term uint64, f proposals.Fate) {
	switch f {
	case proposals.Committed:
		q.tell(w, settlement{receipt: outcome.Receipt{Index: index, Term: term}})
	case proposals.Dropped:
		q.tell(w, settlement{err: outcome.ErrDropped})
	case proposals.Covered:
		q.tell(w, settlement{err: errCovered(index)})
	}
}

func errCovered(index uint64) error {
	return fmt.Errorf("%w: a snapshot covers index %d; read the state machine before you propose it again", outcome.ErrIndeterminate, index)
}

func (q *proposalQueue) tell(w *waiter, o settlement) {
	bytes, c := int64(w.bytes), w.call // a client may use its waiter again as soon as it is told
	if c == nil || o.err == nil && c.Session == nil {
		q.note(o) // other calls are counted when their outcome is final
	}
	kept := false
	if c == nil {
		w.answer(o)
	} else {
		o.receipt.Committed, o.receipt.By = q.at, q.by
		kept = q.answerCall(c, o)
	}
	if !kept {
		q.hold(-bytes)
	}
}

// answerCall takes the outcome of a try that was in this host's log, or was offered to it. It reports whether
// the group keeps the call and tries again.
func (q *proposalQueue) answerCall(c *Call, o settlement) (kept bool) {
	switch {
	case o.err == nil && c.Session != nil:
		return false // it may be a duplicate: what the state machine gets decides
	case o.err == nil:
		if c.w.finish() {
			o.receipt.Queued, o.receipt.Appended, o.receipt.Replicated = c.queued, c.appended, c.replicated
			c.group.tellCommitted(c.Owner, o.receipt)
		}
		return false
	}
	if c.index > 0 {
		c.index, c.appended, c.replicated = 0, 0, 0 // the receipt is that of another try
	}
	if !c.Here && endsTry(o.err) && q.closed == nil && q.calls.putAgain(c) {
		return true
	}
	c.fail(o.err)
	return false
}

// note counts an outcome.
func (q *proposalQueue) note(o settlement) {
	if o.err == nil {
		q.committed++
		return
	}
	q.refusals.Add(o.err, 1)
}

// endedCalls are calls and callers that must be told that they have ended.
type endedCalls struct {
	applying []outcome.Caller // of commands that are with the state machine
	results  []*Call          // that wait for results only
	lost     []lostCall       // the others
}

// lostCall is a call that must be told an error.
type lostCall struct {
	call *Call
	err  error
}

// abandon answers all waiting clients, and later ones at once. A command that was not proposed has certainly
// not been committed; any other may have been. The caller must answer the calls that abandon returns.
func (q *proposalQueue) abandon(cause error) (e endedCalls) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		return endedCalls{}
	}
	q.closed = cause
	q.ended.Store(true)
	proposing := int(q.proposing.Load())
	for i, p := range q.offered {
		err := wrap(outcome.ErrStopped, cause)
		if i < proposing {
			err = wrap(outcome.ErrIndeterminate, cause)
		}
		held := int64(0)
		if p.waiter.call != nil { // a plain command is counted when it is in the log
			held = p.bytes()
		}
		q.endWaiter(&e, p.waiter, err, held)
	}
	q.endRing(&e, wrap(outcome.ErrIndeterminate, cause))
	q.endRouted(&e, wrap(outcome.ErrStopped, cause), wrap(outcome.ErrIndeterminate, cause))
	return e
}

// endCalls ends all calls, and others may begin. It is part of a turn, and nothing is offered. why is for
// those that are certainly not committed. The caller must answer the calls that endCalls returns.
func (q *proposalQueue) endCalls(why error) (e endedCalls) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.clock != nil {
		q.endRing(&e, wrap(outcome.ErrIndeterminate, why))
		q.endRouted(&e, why, wrap(outcome.ErrIndeterminate, why))
	}
	return e
}

func (q *proposalQueue) endRing(e *endedCalls, unknown error) {
	e.applying, q.applying = q.applying, nil
	q.ring.End(func(w *waiter, answered, _ bool) {
		if answered {
			e.results = append(e.results, w.call)
			return
		}
		q.endWaiter(e, w, unknown, int64(w.bytes))
	})
}

// endWaiter ends the wait for what happens to a command that holds some bytes.
func (q *proposalQueue) endWaiter(e *endedCalls, w *waiter, err error, bytes int64) {
	q.hold(-bytes)
	if w.call != nil {
		e.lost = append(e.lost, lostCall{w.call, err})
		return
	}
	q.refusals.Add(err, 1)
	w.answer(settlement{err: err})
}

// endRouted ends the calls that are not in the ring. One without a live try is certainly not committed.
func (q *proposalQueue) endRouted(e *endedCalls, why, unknown error) {
	for p := q.calls.again.First(); p != nil; p = q.calls.again.First() {
		q.endCall(e, p.Owner, why)
	}
	for p := q.calls.sent.First(); p != nil; p = q.calls.sent.First() {
		q.endCall(e, p.Owner, unknown)
	}
}

func (q *proposalQueue) endCall(e *endedCalls, c *Call, err error) {
	q.hold(-c.bytes())
	q.calls.remove(c)
	e.lost = append(e.lost, lostCall{c, err})
}

// tellEnded answers calls that have ended, because of why.
func (g *Group) tellEnded(e endedCalls, why error) {
	for _, c := range e.applying {
		g.tellFailed(c, wrap(outcome.ErrNoResult, why))
	}
	for _, c := range e.results {
		switch {
		case !c.w.waits():
		case c.w.finish(): // not told Committed: the table of sessions may refuse it
			g.tellFailed(c.Owner, wrap(outcome.ErrIndeterminate, why))
		default:
			g.tellFailed(c.Owner, wrap(outcome.ErrNoResult, why))
		}
	}
	for _, l := range e.lost {
		l.call.fail(l.err)
	}
}

// answerAll answers commands that no turn has taken.
func answerAll(batch []proposal, err error) {
	for _, p := range batch {
		if c := p.waiter.call; c != nil {
			c.fail(err)
		} else {
			p.waiter.answer(settlement{err: err})
		}
	}
}
