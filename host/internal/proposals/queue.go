package proposals

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft/raftpb"
)

// Queue holds the clients of this host whose commands a turn has taken, until they know everything:
//
//	offered      by a turn to the core, which takes them in batches
//	ring         in the log, by index: what happens to the entry, and the result of a call
//	calls        on their way to another host, or in the log under a number of a session (retries.go)
//
// A client that waits in the ring may outlive the leadership in which it proposed, but not for long
// (Ring). The group's turn fills the queue and answers for what is committed. An apply lane takes
// the calls of what it applies (results.go). Close answers all clients from another goroutine, since the
// turn may hang on a disk forever. Each method is one atomic step under mu. An owner of a call is told
// under mu, too: it hears of one call from one goroutine at a time. Locks that come before mu: none.
// Behind it: those of the clock of the log (apply.LogTime) and of the transport.
type Queue struct {
	Settings

	mu        lock.Mutex
	closed    error      // not nil: all clients were answered, and new ones are answered at once
	offered   []Proposal // of the group's turn, not proposed yet; the turn alone writes it
	ring      Ring[*Waiter]
	calls     routedCalls
	packs     atomic.Int64     // entries with several commands whose clients wait for an answer; changed under mu
	popped    popped           // results.go
	applying  []outcome.Caller // of the commands that are with the state machine
	delivery  delivery         // outcomes of the answer that is under way
	at        time.Duration    // when the latest commit was seen,
	by        uint64           // and who completed its quorum
	committed uint64           // proposals that got a receipt

	times *outcome.CommandTimes // nil: calls are not timed

	// A turn changes how many of offered it proposes, unless the queue has ended; abandon ends it, and learns
	// the number. Each is one step. So no command is proposed whose client was told that it is not. What is
	// offered belongs to the turn until offer says that something is.
	proposing atomic.Int64 // the number and offering, or one of the other two

	bytes                       atomic.Int64  // of all that is in the log or in calls, with overhead
	Refusals                    RefusalCounts // any goroutine may count here
	forwarded, retried, expired atomic.Uint64 // calls, for Counts

	// Owned by the turn.
	Together bool   // what Next returns becomes one entry, if it is more than one command
	oldest   uint64 // no client of an earlier term waits for its answer in the ring
	answered uint64 // all clients through this commit index are answered
}

const (
	ended     = iota - 1 // closed is set
	unoffered            // nothing is offered
	offering
)

// Offer takes the commands of one turn, except those whose clients have given up. Otherwise, under overload,
// commands that no client waits for any more would fill the log. The first of them came at since. Offer
// reuses the slice.
func (q *Queue) Offer(batch []Proposal, since time.Duration) {
	if len(batch) == 0 {
		return
	}
	kept, callBytes := batch[:0], int64(0)
	for _, p := range batch {
		if p.Waiter.begin() {
			kept = append(kept, p)
			if c := p.Waiter.call; c != nil {
				c.queued = since
				callBytes += p.Bytes()
			}
		}
	}
	if n := len(batch) - len(kept); n > 0 {
		q.Refusals.Withdrawn.Add(uint64(n))
	}
	clear(batch[len(kept):])
	q.hold(callBytes)
	if q.offer(kept) {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.setOffered(kept)
}

// offer takes commands without the lock. It returns false if the queue has ended, or something is offered.
func (q *Queue) offer(batch []Proposal) (ok bool) {
	if len(batch) == 0 || q.proposing.Load() != unoffered {
		return false
	}
	q.offered = batch
	return q.proposing.CompareAndSwap(unoffered, offering)
}

// offerAgain takes calls whose tries have surely ended, and which are counted already. Nothing else is
// offered then.
func (q *Queue) offerAgain(batch []Proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	kept := batch[:0]
	for _, p := range batch {
		if p.Waiter.begin() {
			kept = append(kept, p)
		} else {
			q.Refusals.Withdrawn.Add(1)
			q.hold(-p.Bytes())
		}
	}
	q.setOffered(kept)
}

func (q *Queue) setOffered(batch []Proposal) {
	if q.offered = batch; q.closed != nil {
		q.refuseFirst(batch, outcome.WithCause(outcome.ErrStopped, q.closed))
	} else if len(batch) > 0 {
		q.proposing.Store(offering)
	}
}

// Next returns the next commands to propose, about MaxBytes at most, or none when all were proposed or
// answered. The caller must then call Accept or Refuse. It takes no lock, unless the queue has ended.
func (q *Queue) Next() (batch []Proposal) {
	if batch, ok := q.nextBatch(); ok {
		return batch
	}
	q.mu.Lock() // abandon may still answer them
	defer q.mu.Unlock()
	q.offered = nil
	return nil
}

// nextBatch returns false if the queue has ended.
func (q *Queue) nextBatch() (batch []Proposal, ok bool) {
	n, bytes := 0, 0
	for n < len(q.offered) && (n == 0 || q.fits(n, bytes)) {
		bytes += q.offered[n].size()
		n++
	}
	is, was := int64(unoffered), q.proposing.Load()
	if n > 0 {
		is = offering + int64(n)
	}
	return q.offered[:n], was != ended && q.proposing.CompareAndSwap(was, is)
}

// fits reports whether the next of the commands that are offered goes together with n before it.
func (q *Queue) fits(n, bytes int) bool {
	first, next := q.offered[0], q.offered[n]
	if !q.Together {
		return bytes+next.size() <= q.MaxBytes
	}
	return q.sharesEntry(first.command(), first.size(), 0, 0) && q.sharesEntry(next.command(), next.size(), n, bytes)
}

// Refuse answers a batch of Next that the core has not taken, and returns the next one.
func (q *Queue) Refuse(batch []Proposal, err error) (next []Proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		q.offered = nil // answered
		return nil
	}
	q.refuseFirst(batch, err)
	next, _ = q.nextBatch()
	return next
}

// refuseFirst answers the first of the commands that are offered.
func (q *Queue) refuseFirst(batch []Proposal, err error) {
	for _, p := range batch {
		if p.Waiter.call == nil {
			q.Refusals.Add(err, 1)
			p.Waiter.Answer(Settlement{Err: err})
		} else if bytes := p.Bytes(); !q.answerCall(p.Waiter.call, Settlement{Err: err}) {
			q.hold(-bytes)
		}
	}
	q.offered = q.offered[len(batch):]
}

// Accept registers that a batch of Next is in the log of a term, starting at index, and returns the next one.
// Each command is an entry, or together all are one.
func (q *Queue) Accept(term, index uint64, batch []Proposal, together bool) (next []Proposal) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed != nil {
		q.offered = nil // answered
		return nil
	}
	q.offered = q.offered[len(batch):]
	q.register(term, index, batch, together)
	next, _ = q.nextBatch()
	return next
}

// register registers the clients of commands that are in the log.
func (q *Queue) register(term, index uint64, batch []Proposal, together bool) {
	q.oldest = min(q.oldest, term)
	if together {
		q.ring.Reserve(term, index, 1)[0] = newPack(batch)
		q.packs.Add(1)
	} else {
		places := q.ring.Reserve(term, index, len(batch))
		for i := range batch {
			places[i] = batch[i].Waiter
		}
	}
	bytes, now := int64(0), time.Duration(0)
	if q.Clock != nil {
		now = q.Clock()
	}
	for i, p := range batch {
		held := p.Bytes()
		p.Waiter.bytes = uint32(held)
		c := p.Waiter.call
		switch {
		case c == nil:
			bytes += held // a call is counted since its first turn
			continue
		case together:
			c.index, c.pos = index, uint32(i)
		default:
			c.index, c.pos = index+uint64(i), 0
		}
		c.appended = now
		if q.times != nil {
			q.times.Appended.Add(now - c.queued)
		}
	}
	q.hold(bytes)
}

// hold counts bytes of proposals; less than 0 gives them back.
func (q *Queue) hold(bytes int64) {
	if bytes != 0 {
		q.bytes.Add(bytes)
		q.Budget.Hold(bytes)
	}
}

// Space returns how many bytes more this group may hold.
func (q *Queue) Space() int64 { return q.Budget.Max - q.Budget.Used() - q.bytes.Load() }

// HasSpace reports whether the budget has bytes more for this group.
func (q *Queue) HasSpace(bytes int64) bool { return q.Budget.Fits(q.bytes.Load(), bytes) }

// SeveralWait reports whether more than one client waits for a commit.
func (q *Queue) SeveralWait() bool { return q.ring.Unanswered() > 1 || q.packs.Load() > 0 }

// Counts are what a queue has counted.
type Counts struct {
	Committed uint64 // commands that got a receipt
	Bytes     int64  // of those that are pending, now

	Forwarded, Retried uint64 // calls that were sent to a leader, and sent or proposed once more
	Expired            uint64 // calls whose session had expired
}

// Counts may be called by any goroutine.
func (q *Queue) Counts() Counts {
	q.mu.Lock()
	defer q.mu.Unlock()
	return Counts{Committed: q.committed, Bytes: q.bytes.Load(), Forwarded: q.forwarded.Load(), Retried: q.retried.Load(), Expired: q.expired.Load()}
}

// Times returns how long calls took so far, and whether they are timed. It may be called by any goroutine.
func (q *Queue) Times() (t outcome.CommandTimes, timed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.times == nil {
		return t, false
	}
	return *q.times, true
}

// Shrink releases memory, if no client waits.
func (q *Queue) Shrink() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ring.Shrink()
	q.delivery.Shrink()
}

// AnswerCommitted answers the clients through the last of the entries, which are committed. They get a
// receipt if the entry is theirs, and ErrDropped if another leader's entry took its place. A client below
// the first of them was skipped because a snapshot covers its index. No entry at that index was seen here,
// so the answer is ErrIndeterminate. The member by completed the quorum; 0 if that is not known.
func (q *Queue) AnswerCommitted(committed []raftpb.Entry, by uint64) {
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

// AnswerOwn answers the clients of the leader of term, for everything up to the commit index.
func (q *Queue) AnswerOwn(term, commit, by uint64) {
	if commit > q.answered && q.ring.Unanswered() > 0 {
		q.atCommit(by, func() { q.ring.AnswerOwn(term, commit, q.answer) })
	}
}

// AnswerByTerm answers every client up to the commit index by what the log has there. If the log does not
// know the entry any more, a snapshot covers it, and the outcome is indeterminate. A host that leads in the
// term own need not look at its own entries; 0 if it does not lead.
func (q *Queue) AnswerByTerm(own, commit, by uint64, termAt func(index uint64) (term uint64, ok bool)) {
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
func (q *Queue) atCommit(by uint64, f func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.Clock != nil {
		q.at, q.by = q.Clock(), by
	}
	f()
	q.delivery.Flush()
	q.oldest = q.ring.Oldest()
}

// DropDeposed answers with ErrDropped the clients that a leader of an earlier term than the core's has left
// and whose entries can no longer be committed (Ring.Drop).
func (q *Queue) DropDeposed(term, commit uint64, termAt func(index uint64) (term uint64, ok bool)) {
	if q.oldest >= term {
		return
	}
	commitTerm, ok := termAt(commit)
	if !ok {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.ring.Drop(commit, commitTerm, termAt, func(w *Waiter) { q.answer(w, 0, 0, Dropped) })
	q.delivery.Flush()
	q.oldest = q.ring.Oldest()
}

// answer tells the clients of an entry what happened to it.
func (q *Queue) answer(w *Waiter, index, term uint64, f Fate) {
	if w.pack != nil {
		w.pack.told = true
		q.packs.Add(-1)
	}
	w.each(func(w *Waiter, pos uint32) {
		switch f {
		case Committed:
			q.tell(w, Settlement{Receipt: outcome.Receipt{Index: index, Pos: pos, Term: term}})
		case Dropped:
			q.tell(w, Settlement{Err: outcome.ErrDropped})
		case Covered:
			q.tell(w, Settlement{Err: errCovered(index)})
		}
	})
}

func errCovered(index uint64) error {
	return fmt.Errorf("%w: a snapshot covers index %d; read the state machine before you propose it again", outcome.ErrIndeterminate, index)
}

func (q *Queue) tell(w *Waiter, o Settlement) {
	bytes, c := int64(w.bytes), w.call // a client may use its waiter again as soon as it is told
	if c == nil || o.Err == nil && c.Session == nil {
		q.record(o) // other calls are counted when their outcome is final
	}
	kept := false
	switch {
	case c == nil && w.to != nil:
		q.delivery.Add(w.to, w.complete(o))
	case c == nil:
		w.Answer(o)
	default:
		o.Receipt.Committed, o.Receipt.By = q.at, q.by
		kept = q.answerCall(c, o)
	}
	if !kept {
		q.hold(-bytes)
	}
}

// answerCall takes the outcome of a try that was in this host's log, or was offered to it. It reports whether
// the group keeps the call and tries again.
func (q *Queue) answerCall(c *Call, o Settlement) (kept bool) {
	switch {
	case o.Err == nil && c.Session != nil:
		return false // it may be a duplicate: what the state machine gets decides
	case o.Err == nil:
		if c.w.finish() {
			o.Receipt.Queued, o.Receipt.Appended, o.Receipt.Replicated = c.queued, c.appended, c.replicated
			if q.times != nil {
				q.times.Committed.Add(o.Receipt.Committed - c.queued)
			}
			q.Callers.Committed(c.Owner, o.Receipt)
		}
		return false
	}
	if c.index > 0 {
		c.index, c.appended, c.replicated = 0, 0, 0 // the receipt is that of another try
	}
	if !c.Here && endsTry(o.Err) && q.closed == nil && q.calls.requeue(c) {
		return true
	}
	c.fail(o.Err)
	return false
}

// record counts an outcome.
func (q *Queue) record(o Settlement) {
	if o.Err == nil {
		q.committed++
		return
	}
	q.Refusals.Add(o.Err, 1)
}
