package host

import (
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/millrace/millrace/raft/raftpb"
)

// pendingByTerm holds the clients that wait for proposals of this host: a list for each term that it led, in
// log order. Only committed entries decide the outcome of a proposal, since an entry that another leader has
// overwritten here may survive elsewhere and come back. So waiting clients outlive the leadership in which
// they proposed, but not for long: terms never decrease along a log (thesis §3.5), so once an entry of a
// later term is committed, no entry of an earlier term can be committed behind it. Every new leader commits
// an entry of its own at once.
//
// The group's turn fills the lists and answers from them. Close answers all clients from another goroutine,
// since the turn may hang on a disk forever. Each method is one atomic step under mu.
type pendingByTerm struct {
	budget *budget

	mu     sync.Mutex
	closed error // not nil: all clients were answered, and new ones are answered at once

	offered   []proposal // of the group's turn, not proposed yet
	proposing int        // how many of them are being proposed
	all       []pendingTerm
	bytes     int64         // of all pending proposals, with overhead
	at        time.Duration // when the latest commit was seen,
	by        uint64        // and who completed its quorum
	committed uint64        // proposals that got a receipt
	refusals  refusalCounts // any goroutine may count here
	count     int
}

type pendingTerm struct {
	term    uint64
	next    uint64 // index of waiting[0]
	waiting []pendingProposal
}

type pendingProposal struct {
	waiter *waiter // nil: an entry of this host for which no client waits
	bytes  int64
}

// offer takes the commands of one turn, except those whose clients have given up. Otherwise, under overload,
// commands that no client waits for any more would fill the log. The first of them came at since. offer
// reuses the slice.
func (t *pendingByTerm) offer(proposals []proposal, since time.Duration) {
	kept, callBytes := proposals[:0], int64(0)
	for _, p := range proposals {
		if p.waiter.take() {
			kept = append(kept, p)
			if c := p.waiter.call; c != nil {
				c.queued = since
				callBytes += p.bytes()
			}
		}
	}
	if n := len(proposals) - len(kept); n > 0 {
		t.refusals.withdrawn.Add(uint64(n))
	}
	clear(proposals[len(kept):])
	t.mu.Lock()
	defer t.mu.Unlock()
	t.offered = kept
	if callBytes > 0 {
		t.hold(callBytes)
	}
	if t.closed != nil {
		t.refuseOffered(wrap(ErrStopped, t.closed))
	}
}

// offerAgain takes calls whose tries have surely ended, and which are counted already. Nothing else is
// offered then.
func (t *pendingByTerm) offerAgain(proposals []proposal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := proposals[:0]
	for _, p := range proposals {
		if p.waiter.take() {
			kept = append(kept, p)
		} else {
			t.hold(-p.bytes())
		}
	}
	t.offered = kept
	if t.closed != nil {
		t.refuseOffered(wrap(ErrStopped, t.closed))
	}
}

// stampCommit notes when what is answered next was committed, and who completed the quorum. It reads the
// clock only if a client waits.
func (t *pendingByTerm) stampCommit(clock func() time.Duration, by uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count > 0 {
		t.at, t.by = clock(), by
	}
}

// space returns how many bytes more this group may hold.
func (t *pendingByTerm) space() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.budget.max - t.budget.used.Load() - t.bytes
}

// releaseCalls releases the bytes of calls that have left the lists of the group.
func (t *pendingByTerm) releaseCalls(bytes int64) {
	if bytes == 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hold(-bytes)
}

// next returns the next commands to propose, about maxBytes at most, or none when all were proposed or
// answered. The caller must then call accept or refuse.
func (t *pendingByTerm) next(maxBytes int) (batch []proposal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, bytes := 0, 0
	for n < len(t.offered) && (n == 0 || bytes+t.offered[n].size() <= maxBytes) {
		bytes += t.offered[n].size()
		n++
	}
	t.proposing = n
	return t.offered[:n]
}

// hasSpace reports whether the budget has bytes more for this group.
func (t *pendingByTerm) hasSpace(bytes int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.budget.fits(t.bytes, bytes)
}

// hold counts bytes of pending proposals; less than 0 gives them back.
func (t *pendingByTerm) hold(bytes int64) {
	t.bytes += bytes
	t.budget.hold(bytes)
}

// refuse answers a batch of next that the core has not taken.
func (t *pendingByTerm) refuse(batch []proposal, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return // answered
	}
	t.answerOffered(batch, err)
	t.offered, t.proposing = t.offered[len(batch):], 0
}

// accept registers that a batch of next is in the log as entries of term, starting at index.
func (t *pendingByTerm) accept(term, index uint64, batch []proposal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return // answered
	}
	t.offered, t.proposing = t.offered[len(batch):], 0
	t.add(term, index, batch)
}

// severalWait reports whether more than one client waits for a commit.
func (t *pendingByTerm) severalWait() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count > 1
}

// add registers the clients of the entries of term, starting at index. Within a term indexes only grow.
// Entries in between without a client (the leader's first) are filled in.
func (t *pendingByTerm) add(term, index uint64, proposals []proposal) {
	if n := len(t.all); n == 0 || t.all[n-1].term != term {
		t.all = append(t.all, pendingTerm{term: term, next: index})
	}
	last := &t.all[len(t.all)-1]
	if len(last.waiting) == 0 {
		last.next = index
	}
	for last.next+uint64(len(last.waiting)) < index {
		last.waiting = append(last.waiting, pendingProposal{})
	}
	for _, p := range proposals {
		last.waiting = append(last.waiting, pendingProposal{p.waiter, p.bytes()})
		if p.waiter.call == nil { // a call is counted since its first turn
			t.hold(p.bytes())
		}
	}
	t.count += len(proposals)
}

// answerCommitted answers every pending proposal with an index in the committed entries: with a receipt if
// the entry is its own, with ErrDropped if another leader's entry took its place. A pending proposal below
// the first of them was skipped because a snapshot covers its index. No entry at that index was seen here, so
// the answer is ErrIndeterminate.
func (t *pendingByTerm) answerCommitted(committed []raftpb.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(committed) == 0 || len(t.all) == 0 {
		return
	}
	first, last := committed[0].Index, committed[len(committed)-1].Index
	kept := t.all[:0]
	for _, pt := range t.all {
		for len(pt.waiting) > 0 && pt.next <= last {
			switch index := pt.next; {
			case index < first:
				t.answerNext(&pt, settlement{err: errCovered(index)})
			case committed[index-first].Term == pt.term:
				t.answerNext(&pt, settlement{receipt: Receipt{Index: index, Term: pt.term}})
			default:
				t.answerNext(&pt, settlement{err: ErrDropped})
			}
		}
		if len(pt.waiting) > 0 {
			kept = append(kept, pt)
		}
	}
	clear(t.all[len(kept):])
	t.all = kept
}

// answerByTerm answers every pending proposal up to the commit index: with a receipt if the log has an entry
// of its term there, with ErrDropped if it has another. If the log does not know the entry any more, a
// snapshot covers it, and the outcome is indeterminate.
func (t *pendingByTerm) answerByTerm(commit uint64, termAt func(index uint64) (term uint64, ok bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == 0 {
		return
	}
	kept := t.all[:0]
	for _, pt := range t.all {
		for len(pt.waiting) > 0 && pt.next <= commit {
			switch term, ok := termAt(pt.next); {
			case !ok:
				t.answerNext(&pt, settlement{err: errCovered(pt.next)})
			case term == pt.term:
				t.answerNext(&pt, settlement{receipt: Receipt{Index: pt.next, Term: term}})
			default:
				t.answerNext(&pt, settlement{err: ErrDropped})
			}
		}
		if len(pt.waiting) > 0 {
			kept = append(kept, pt)
		}
	}
	clear(t.all[len(kept):])
	t.all = kept
}

func errCovered(index uint64) error {
	return fmt.Errorf("%w: a snapshot covers index %d; read the state machine before you propose it again", ErrIndeterminate, index)
}

// before reports whether proposals of an earlier term than this one are pending.
func (t *pendingByTerm) before(term uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all) > 0 && t.all[0].term < term
}

// dropDeposed answers with ErrDropped the pending proposals that can no longer be committed. These belong to
// a term before commitTerm, the term of the last committed entry, and their index holds an entry of another
// term or is not committed. termAt returns the term of a committed entry of this host's log; ok is false if
// the log no longer knows it.
//
// answerCommitted makes the same decision, but only when entries are applied, so a state machine that hangs
// would keep the clients waiting. dropDeposed gives no receipts, as each pipeline gives them at its own time.
func (t *pendingByTerm) dropDeposed(commit, commitTerm uint64, termAt func(index uint64) (term uint64, ok bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.all[:0]
	for _, pt := range t.all {
		if pt.term < commitTerm {
			t.dropFrom(&pt, pt.survivors(commit, termAt))
		}
		if len(pt.waiting) > 0 {
			kept = append(kept, pt)
		}
	}
	clear(t.all[len(kept):])
	t.all = kept
}

// survivors counts the first pending proposals of a deposed leader that may still get a receipt. They are a
// prefix: behind the point where the committed log diverges from the leader's, it has no entry of the leader
// (Log Matching, thesis §3.5). If the log no longer knows the term, answerCommitted will answer.
func (pt *pendingTerm) survivors(commit uint64, termAt func(uint64) (uint64, bool)) int {
	if commit < pt.next {
		return 0
	}
	return sort.Search(min(len(pt.waiting), int(commit-pt.next)+1), func(i int) bool {
		term, ok := termAt(pt.next + uint64(i))
		return ok && term != pt.term
	})
}

// dropFrom answers the pending proposals of a term, starting at the nth, with ErrDropped.
func (t *pendingByTerm) dropFrom(pt *pendingTerm, n int) {
	for i := n; i < len(pt.waiting); i++ {
		t.answer(pt.waiting[i], settlement{err: ErrDropped})
	}
	clear(pt.waiting[n:])
	pt.waiting = pt.waiting[:n]
}

// answerOwn answers the clients of the leader of term, for everything up to the commit index. The entries
// that it proposed in its term stay in its log while it leads, so it need not look at them. The followers'
// disks may commit them before they are on this host's disk, and so before they are applied.
func (t *pendingByTerm) answerOwn(term, commit uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == 0 {
		return
	}
	pt := &t.all[len(t.all)-1]
	if pt.term != term {
		return
	}
	for len(pt.waiting) > 0 && pt.next <= commit {
		t.answerNext(pt, settlement{receipt: Receipt{Index: pt.next, Term: term}})
	}
}

// answerNext removes the first pending proposal of a term and answers it.
func (t *pendingByTerm) answerNext(pt *pendingTerm, o settlement) {
	c := pt.waiting[0]
	pt.waiting[0] = pendingProposal{}
	pt.waiting, pt.next = pt.waiting[1:], pt.next+1
	t.answer(c, o)
}

func (t *pendingByTerm) answer(c pendingProposal, o settlement) {
	if c.waiter != nil {
		t.count--
		if c.waiter.call != nil {
			o.receipt.Committed, o.receipt.By = t.at, t.by
		}
		if call := c.waiter.call; call == nil || o.err == nil && call.Session == nil {
			t.note(o) // other calls are counted when their outcome is final
		}
		if !c.waiter.answer(o) {
			t.hold(-c.bytes)
		}
	}
}

// lostCall is a call that must be told an error.
type lostCall struct {
	call *Call
	err  error
}

// abandon answers all waiting clients, and later ones at once. A command that was not proposed has certainly
// not been committed; any other may have been. The caller must answer the calls that abandon returns.
func (t *pendingByTerm) abandon(cause error) (calls []lostCall) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return nil
	}
	t.closed = cause
	for i, p := range t.offered {
		err := ErrStopped
		if i < t.proposing {
			err = ErrIndeterminate
		}
		if c := p.waiter.call; c != nil {
			calls = append(calls, lostCall{c, wrap(err, cause)})
			t.hold(-p.bytes())
			continue
		}
		t.refusals.note(err, 1)
		p.waiter.answer(settlement{err: wrap(err, cause)})
	}
	t.offered, t.proposing = nil, 0
	for _, pt := range t.all {
		for _, c := range pt.waiting {
			if c.waiter == nil {
				continue
			}
			t.hold(-c.bytes)
			t.count--
			if call := c.waiter.call; call != nil {
				calls = append(calls, lostCall{call, wrap(ErrIndeterminate, cause)})
				continue
			}
			t.refusals.note(ErrIndeterminate, 1)
			c.waiter.answer(settlement{err: wrap(ErrIndeterminate, cause)})
		}
	}
	t.all = nil
	return calls
}

// forgetCalls forgets the calls that wait, and returns them. Their entries may be committed.
func (t *pendingByTerm) forgetCalls() (calls []*Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, pt := range t.all {
		for i := range pt.waiting {
			if c := &pt.waiting[i]; c.waiter != nil && c.waiter.call != nil {
				calls = append(calls, c.waiter.call)
				t.hold(-c.bytes)
				t.count--
				*c = pendingProposal{}
			}
		}
	}
	return calls
}

func (t *pendingByTerm) refuseOffered(err error) {
	t.answerOffered(t.offered, err)
	t.offered, t.proposing = nil, 0
}

// answerOffered answers commands that were not proposed.
func (t *pendingByTerm) answerOffered(proposals []proposal, err error) {
	for _, p := range proposals {
		if p.waiter.call == nil {
			t.refusals.note(err, 1)
		}
		if isCall := p.waiter.call != nil; !p.waiter.answer(settlement{err: err}) && isCall {
			t.hold(-p.bytes())
		}
	}
}

// note counts an outcome.
func (t *pendingByTerm) note(o settlement) {
	if o.err == nil {
		t.committed++
		return
	}
	t.refusals.note(o.err, 1)
}

func answerAll(proposals []proposal, err error) {
	for _, p := range proposals {
		p.waiter.answer(settlement{err: err})
	}
}
