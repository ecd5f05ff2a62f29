package host

import (
	"fmt"
	"sort"
	"sync"

	pb "github.com/millrace/millrace/raft/raftpb"
)

// tenures holds who waits for what this host has proposed: a list for each term that it led, in order of the log. Only
// what is committed decides what became of a proposal — an entry that another leader has overwritten here may survive
// elsewhere and come back — so waiters outlive the leadership they were made in. They end with it soon after: terms never
// fall along a log (thesis §3.5), so once an entry of a later term is committed, no entry of an earlier term can be
// committed behind it. Every new leader commits an entry of its own at once.
//
// The group's turn fills and settles it; Close answers everyone from another goroutine, since the turn may hang on a disk
// for ever. Each method is one step under mu.
type tenures struct {
	mu     sync.Mutex
	closed error // set: everyone was answered, and whoever comes is answered at once

	offered   []proposal // of the group's turn, not proposed yet
	proposing int        // so many of them are being proposed
	all       []tenure
	bytes     int64 // of all claims, with overhead
	count     int
}

type tenure struct {
	term    uint64
	next    uint64 // index of waiting[0]
	waiting []claim
}

type claim struct {
	waiter *waiter // nil: an entry of ours that nobody waits for
	bytes  int64
}

// offer takes the commands of one turn, without those whose clients have given up. Under overload, with clients that stop
// waiting before their turn comes, the log would else fill up with commands that nobody wants any more. The slice is used.
func (t *tenures) offer(proposals []proposal) {
	kept := proposals[:0]
	for _, p := range proposals {
		if p.waiter.take() {
			kept = append(kept, p)
		}
	}
	clear(proposals[len(kept):])
	t.mu.Lock()
	defer t.mu.Unlock()
	t.offered = kept
	if t.closed != nil {
		t.refuseOffered(wrap(ErrStopped, t.closed))
	}
}

// next returns the next commands to propose, of at most about maxBytes; none when all have been proposed, or answered. The
// caller goes on with accept or refuse.
func (t *tenures) next(maxBytes int) (batch []proposal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, bytes := 0, 0
	for n < len(t.offered) && (n == 0 || bytes+len(t.offered[n].command) <= maxBytes) {
		bytes += len(t.offered[n].command)
		n++
	}
	t.proposing = n
	return t.offered[:n]
}

// hasRoom reports whether claims of so many bytes more are within the bound, or the only ones.
func (t *tenures) hasRoom(bytes, maxBytes int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes == 0 || t.bytes+bytes <= maxBytes
}

// refuse answers a batch of next that the core has not taken.
func (t *tenures) refuse(batch []proposal, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return // answered
	}
	answerAll(batch, err)
	t.offered, t.proposing = t.offered[len(batch):], 0
}

// accept registers that a batch of next stands in the log as entries of term, from index on.
func (t *tenures) accept(term, index uint64, batch []proposal) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return // answered
	}
	t.offered, t.proposing = t.offered[len(batch):], 0
	t.add(term, index, batch)
}

// severalWait reports whether more than one client waits for an entry to be committed.
func (t *tenures) severalWait() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count > 1
}

// add registers who waits for entries of term, from index on. Within a tenure indexes only grow; entries in between that
// nobody waits for (the leader's first) are filled in.
func (t *tenures) add(term, index uint64, proposals []proposal) {
	if n := len(t.all); n == 0 || t.all[n-1].term != term {
		t.all = append(t.all, tenure{term: term, next: index})
	}
	last := &t.all[len(t.all)-1]
	if len(last.waiting) == 0 {
		last.next = index
	}
	for last.next+uint64(len(last.waiting)) < index {
		last.waiting = append(last.waiting, claim{})
	}
	for _, p := range proposals {
		last.waiting = append(last.waiting, claim{p.waiter, p.bytes()})
		t.bytes += p.bytes()
	}
	t.count += len(proposals)
}

// settle answers every claim on an index within the committed entries: a receipt where the entry is the claim's,
// ErrDropped where another leader's entry took its place. A claim below the first of them was skipped (a snapshot covers
// its index): nobody here has seen which entry was committed there, so the answer is ErrIndeterminate.
func (t *tenures) settle(committed []pb.Entry) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(committed) == 0 || len(t.all) == 0 {
		return
	}
	first, last := committed[0].Index, committed[len(committed)-1].Index
	kept := t.all[:0]
	for _, ten := range t.all {
		for len(ten.waiting) > 0 && ten.next <= last {
			switch index := ten.next; {
			case index < first:
				t.answerNext(&ten, outcome{err: fmt.Errorf("%w: a snapshot covers index %d", ErrIndeterminate, index)})
			case committed[index-first].Term == ten.term:
				t.answerNext(&ten, outcome{receipt: Receipt{Index: index, Term: ten.term}})
			default:
				t.answerNext(&ten, outcome{err: ErrDropped})
			}
		}
		if len(ten.waiting) > 0 {
			kept = append(kept, ten)
		}
	}
	clear(t.all[len(kept):])
	t.all = kept
}

// before reports whether a leadership of a term before this one has claims.
func (t *tenures) before(term uint64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.all) > 0 && t.all[0].term < term
}

// dropDeposed answers the claims that can no longer be committed, with ErrDropped: those of a term before commitTerm, the
// term of the last committed entry, on an index that holds an entry of another term or is not committed. termAt returns the
// term of a committed entry of this host's log; ok is false where the log does not know it any more.
//
// settle decides the same, but only for entries that are handed out to be applied: a state machine that is stuck would
// keep the clients waiting. Receipts are left to settle, as each pipeline gives them at a time of its own.
func (t *tenures) dropDeposed(commit, commitTerm uint64, termAt func(index uint64) (term uint64, ok bool)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	kept := t.all[:0]
	for _, ten := range t.all {
		if ten.term < commitTerm {
			t.dropFrom(&ten, ten.survivors(commit, termAt))
		}
		if len(ten.waiting) > 0 {
			kept = append(kept, ten)
		}
	}
	clear(t.all[len(kept):])
	t.all = kept
}

// survivors counts the first claims of a deposed leader that may still get a receipt. They are a prefix: where the
// committed log parts from the leader's, it has no entry of the leader's behind that point (Log Matching, thesis §3.5).
// Where the term is not known any more, settle will answer.
func (ten *tenure) survivors(commit uint64, termAt func(uint64) (uint64, bool)) int {
	if commit < ten.next {
		return 0
	}
	return sort.Search(min(len(ten.waiting), int(commit-ten.next)+1), func(i int) bool {
		term, ok := termAt(ten.next + uint64(i))
		return ok && term != ten.term
	})
}

// dropFrom answers the claims of a tenure from the nth on with ErrDropped.
func (t *tenures) dropFrom(ten *tenure, n int) {
	for i := n; i < len(ten.waiting); i++ {
		t.answer(ten.waiting[i], outcome{err: ErrDropped})
	}
	clear(ten.waiting[n:])
	ten.waiting = ten.waiting[:n]
}

// settleOwn answers the clients of the leader of term for everything through the commit index. What it proposed in its
// term stands in its log as proposed as long as it leads, so there is no need to see the entries: they may be committed by
// the followers' disks before they are on the own one, and so before they are handed out to be applied.
func (t *tenures) settleOwn(term, commit uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.all) == 0 {
		return
	}
	ten := &t.all[len(t.all)-1]
	if ten.term != term {
		return
	}
	for len(ten.waiting) > 0 && ten.next <= commit {
		t.answerNext(ten, outcome{receipt: Receipt{Index: ten.next, Term: term}})
	}
}

// answerNext takes the first claim off a tenure.
func (t *tenures) answerNext(ten *tenure, o outcome) {
	c := ten.waiting[0]
	ten.waiting[0] = claim{}
	ten.waiting, ten.next = ten.waiting[1:], ten.next+1
	t.answer(c, o)
}

func (t *tenures) answer(c claim, o outcome) {
	if c.waiter != nil {
		t.bytes -= c.bytes
		t.count--
		c.waiter.answer(o)
	}
}

// abandon answers everyone who still waits, and whoever comes later: a command that was not proposed has surely not been
// committed, any other may have been.
func (t *tenures) abandon(cause error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed != nil {
		return
	}
	t.closed = cause
	answerAll(t.offered[:t.proposing], wrap(ErrIndeterminate, cause))
	t.offered = t.offered[t.proposing:]
	t.refuseOffered(wrap(ErrStopped, cause))
	for _, ten := range t.all {
		for _, c := range ten.waiting {
			t.answer(c, outcome{err: wrap(ErrIndeterminate, cause)})
		}
	}
	t.all = nil
}

func (t *tenures) refuseOffered(err error) {
	answerAll(t.offered, err)
	t.offered, t.proposing = nil, 0
}

func answerAll(proposals []proposal, err error) {
	for _, p := range proposals {
		p.waiter.answer(outcome{err: err})
	}
}
