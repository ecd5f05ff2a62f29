package leadership

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/tracker"
)

// Transfer is host.Transfer: a leadership that is handed over because a caller wants it. Any goroutine may
// call its methods.
type Transfer struct {
	to   uint64
	done chan struct{} // closed with the outcome

	mu  lock.Mutex
	err error
	is  bool

	// Owned by the turn.
	target uint64 // that was asked of the core; 0: not yet
	term   uint64 // in which it was
	at     int64  // tick
}

// NewTransfer returns a transfer to a member, or with 0 to the best.
func NewTransfer(to uint64) *Transfer { return &Transfer{to: to, done: make(chan struct{})} }

// Done is closed when the transfer has ended.
func (t *Transfer) Done() <-chan struct{} { return t.done }

// Outcome returns whether the transfer has ended, and with which error.
func (t *Transfer) Outcome() (done bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.is, t.err
}

// Finish gives the outcome, once.
func (t *Transfer) Finish(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.is {
		t.is, t.err = true, err
		close(t.done)
	}
}

// Replace ends the transfer, because another one takes its place.
func (t *Transfer) Replace(by *Transfer) {
	t.Finish(fmt.Errorf("millrace: another transfer of the leadership, to host %d, took the place of this one", by.to))
}

// Transfer begins a transfer that a caller has asked for; nil: none came. It ends the transfer under way when
// another member leads, or this one does again. It reports whether the next turn must call it again.
func (l *Leader) Transfer(came *Transfer) (again bool) {
	if came != nil {
		l.startTransfer(came)
	}
	l.advanceTransfer()
	return l.transfer != nil
}

func (l *Leader) startTransfer(t *Transfer) {
	if was := l.transfer; was != nil {
		was.Replace(t)
		l.transfer = nil
	}
	st := l.turn.Core().BasicStatus()
	switch {
	case st.RaftState != raft.StateLeader:
		t.Finish(l.turn.NotLeader(st.Lead))
		return
	case t.to == l.settings.Self:
		t.Finish(nil)
		return
	}
	if t.target = t.to; t.target == raft.None {
		t.target = l.Successor(func(id uint64, pr tracker.Progress) bool { return pr.RecentActive || l.turn.IsThere(id) })
	}
	if t.target == raft.None {
		t.Finish(fmt.Errorf("millrace: group %d keeps its leader, host %d: no other member was heard lately", l.settings.Group, l.settings.Self))
		return
	}
	if what := l.turn.Lacks(t.target); what != "" {
		t.Finish(fmt.Errorf("millrace: group %d keeps its leader, host %d: host %d lacks %s, which commands may name, so it could not apply them; wait until it has fetched it", l.settings.Group, l.settings.Self, t.target, what))
		return
	}
	if err := l.turn.Core().TransferLeader(t.target); err != nil {
		t.Finish(fmt.Errorf("millrace: group %d keeps its leader, host %d: %w", l.settings.Group, l.settings.Self, err))
		return
	}
	t.term, t.at, l.transfer = st.Term, l.turn.Ticks(), t
	l.turn.Transferred(st.Term)
	l.turn.GivenUp(st.Term, t.target, "a caller has asked for it")
}

// advanceTransfer ends the transfer under way when another member leads, or this one does again.
func (l *Leader) advanceTransfer() {
	t := l.transfer
	if t == nil {
		return
	}
	st := l.turn.Core().BasicStatus()
	switch leads := st.RaftState == raft.StateLeader; {
	case leads && st.Term == t.term && st.LeadTransferee == t.target:
		return // under way
	case leads && st.Term == t.term:
		t.Finish(l.notLevel(t))
	case leads:
		t.Finish(fmt.Errorf("millrace: group %d is led by host %d again, in term %d: host %d was not elected", l.settings.Group, l.settings.Self, st.Term, t.target))
	case st.Lead == raft.None:
		return // an election is under way
	case t.to != raft.None && st.Lead != t.to:
		t.Finish(fmt.Errorf("millrace: group %d is led by host %d now, in term %d, and not by host %d", l.settings.Group, st.Lead, st.Term, t.to))
	default:
		t.Finish(nil)
	}
	l.transfer = nil
}

// notLevel says why the core has given a transfer up.
func (l *Leader) notLevel(t *Transfer) error {
	took := time.Duration(l.turn.Ticks()-t.at) * l.settings.Tick
	last, match := l.turn.Core().BasicStatus().LastIndex, uint64(0)
	l.turn.Core().WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == t.target {
			match = pr.Match
		}
	})
	return fmt.Errorf("millrace: group %d keeps its leader, host %d: in %v host %d did not take over; it holds entry %d of %d; look at its host, its disk and the network to it",
		l.settings.Group, l.settings.Self, took, t.target, match, last)
}
