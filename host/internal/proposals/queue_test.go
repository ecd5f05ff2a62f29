package proposals

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/millrace/millrace/host/internal/budget"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/raft/raftpb"
	"pgregory.net/rapid"
)

func waitersFor(n int) (all []*Waiter, batch []Proposal) {
	for range n {
		w := NewWaiter()
		all, batch = append(all, w), append(batch, Proposal{Command: []byte("1234"), Waiter: w})
	}
	return all, batch
}

// told describes the answer that a waiter got.
func told(w *Waiter) string {
	switch {
	case !w.Answered():
		return "nothing"
	case w.Outcome.Err != nil:
		return w.Outcome.Err.Error()
	}
	return fmt.Sprintf("%d@%d", w.Outcome.Receipt.Index, w.Outcome.Receipt.Term)
}

func span(lo, hi, term uint64) (entries []raftpb.Entry) {
	for i := lo; i < hi; i++ {
		entries = append(entries, raftpb.Entry{Index: i, Term: term})
	}
	return entries
}

// Two leaderships have pending proposals at the same indexes. The committed entries decide, for each index
// separately.
func TestTenuresOverlap(t *testing.T) {
	c := NewQueue(Settings{Budget: &budget.Budget{}})
	old, oldBatch := waitersFor(4) // 10 to 13 of term 3
	c.register(3, 10, oldBatch, false)
	young, youngBatch := waitersFor(3) // 12 to 14 of term 5: another leader had cut the log to 11
	c.register(5, 12, youngBatch, false)
	if c.bytes.Load() != 7*(4+OverheadBytes) || c.ring.Unanswered() != 7 {
		t.Errorf("%d bytes of %d commands are pending", c.bytes.Load(), c.ring.Unanswered())
	}
	c.AnswerCommitted(span(8, 10, 2), 0) // before all pending proposals
	if told(old[0]) != "nothing" {
		t.Error("answered too early")
	}
	c.AnswerCommitted(append(span(10, 12, 3), span(12, 14, 5)...), 0)
	for i, want := range []string{"10@3", "11@3", outcome.ErrDropped.Error(), outcome.ErrDropped.Error()} {
		if got := told(old[i]); got != want {
			t.Errorf("old %d: %s, want %s", i, got, want)
		}
	}
	for i, want := range []string{"12@5", "13@5", "nothing"} {
		if got := told(young[i]); got != want {
			t.Errorf("young %d: %s, want %s", i, got, want)
		}
	}
	c.Abandon(outcome.ErrIndeterminate)
	if got := told(young[2]); got != outcome.ErrIndeterminate.Error() {
		t.Errorf("abandoned: %s", got)
	}
	if c.bytes.Load() != 0 || c.ring.Unanswered() != 0 {
		t.Errorf("%d bytes of %d commands are left", c.bytes.Load(), c.ring.Unanswered())
	}
}

// Entries of the term that no client waits for are between the pending proposals.
func TestPendingWithGaps(t *testing.T) {
	c := NewQueue(Settings{Budget: &budget.Budget{}})
	a, batchA := waitersFor(1)
	c.register(1, 2, batchA, false)
	b, batchB := waitersFor(1)
	c.register(1, 5, batchB, false)
	c.AnswerCommitted(span(1, 5, 1), 0)
	if got := told(a[0]); got != "2@1" {
		t.Error(got)
	}
	if got := told(b[0]); got != "nothing" {
		t.Error(got)
	}
	c.AnswerCommitted(span(5, 6, 1), 0)
	if got := told(b[0]); got != "5@1" {
		t.Error(got)
	}
	if c.bytes.Load() != 0 || c.ring.Unanswered() != 0 {
		t.Errorf("%d bytes of %d commands are left", c.bytes.Load(), c.ring.Unanswered())
	}
}

// A snapshot skips indexes. This host has not seen what was committed there, so it may be the command.
func TestPendingSkippedBySnapshot(t *testing.T) {
	c := NewQueue(Settings{Budget: &budget.Budget{}})
	ws, batch := waitersFor(3)
	c.register(3, 10, batch, false)
	c.AnswerCommitted(span(12, 14, 3), 0)
	const advice = "; read the state machine before you propose it again"
	for i, want := range []string{outcome.ErrIndeterminate.Error() + ": a snapshot covers index 10" + advice, outcome.ErrIndeterminate.Error() + ": a snapshot covers index 11" + advice, "12@3"} {
		if got := told(ws[i]); got != want {
			t.Errorf("proposal %d was told %s, want %s", i, got, want)
		}
	}
}

// Once an entry of a later term is committed, no entry of an earlier term can be committed behind it. Clients
// that wait for such an entry are answered even if nothing was handed out; clients whose entries may be
// committed wait for their receipts.
func TestTenuresOfADeposedLeader(t *testing.T) {
	c := NewQueue(Settings{Budget: &budget.Budget{}})
	ws, batch := waitersFor(5) // 10 to 14 of term 3
	c.register(3, 10, batch, false)
	log := map[uint64]uint64{10: 3, 11: 3, 12: 2, 13: 5} // 12 was in the next leader's log from before
	termAt := func(i uint64) (uint64, bool) { term, ok := log[i]; return term, ok }
	c.DropDeposed(3, 11, termAt)
	if told(ws[4]) != "nothing" {
		t.Error("answered although nothing of a later term is committed")
	}
	c.DropDeposed(5, 13, termAt)
	for i, want := range []string{"nothing", "nothing", outcome.ErrDropped.Error(), outcome.ErrDropped.Error(), outcome.ErrDropped.Error()} {
		if got := told(ws[i]); got != want {
			t.Errorf("proposal at %d was told %s, want %s", 10+i, got, want)
		}
	}
	c.AnswerCommitted(span(10, 12, 3), 0)
	for i, want := range []string{"10@3", "11@3"} {
		if got := told(ws[i]); got != want {
			t.Errorf("proposal at %d was told %s, want %s", 10+i, got, want)
		}
	}
	if c.bytes.Load() != 0 || c.ring.Unanswered() != 0 {
		t.Errorf("%d bytes of %d commands are left", c.bytes.Load(), c.ring.Unanswered())
	}
}

// The naive twin: a flat list of (index, term, waiter), searched completely each time.
func TestTenuresTwin(t *testing.T) {
	type pendingTwin struct {
		index, term uint64
		w           *Waiter
	}
	rapid.Check(t, func(rt *rapid.T) {
		c := NewQueue(Settings{Budget: &budget.Budget{}})
		var twin []pendingTwin
		term, last, committed := uint64(1), uint64(0), uint64(0)
		log := map[uint64]uint64{} // index → term, the log of this host
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			switch rapid.SampledFrom([]string{"propose", "propose", "noop", "lose", "commit"}).Draw(rt, "step") {
			case "propose":
				ws, batch := waitersFor(rapid.IntRange(1, 4).Draw(rt, "n"))
				c.register(term, last+1, batch, false)
				for _, w := range ws {
					last++
					log[last] = term
					twin = append(twin, pendingTwin{last, term, w})
				}
			case "noop":
				last++
				log[last] = term
			case "lose": // another leader cuts the log and writes; then this host leads again
				last = rapid.Uint64Range(committed, last).Draw(rt, "cut")
				for range rapid.IntRange(0, 3).Draw(rt, "others") {
					last++
					log[last] = term + 1
				}
				term += 2
			case "commit":
				through := rapid.Uint64Range(committed, last).Draw(rt, "through")
				var entries []raftpb.Entry
				for i := committed + 1; i <= through; i++ {
					entries = append(entries, raftpb.Entry{Index: i, Term: log[i]})
				}
				committed = through
				c.DropDeposed(term, committed, func(i uint64) (uint64, bool) { t, ok := log[i]; return t, ok })
				c.AnswerCommitted(entries, 0)
			}
			var waiting []pendingTwin
			var bytes int64
			for _, k := range twin {
				want := "nothing"
				switch {
				case k.index > committed && k.term < log[committed]:
					want = outcome.ErrDropped.Error()
				case k.index > committed:
					waiting, bytes = append(waiting, k), bytes+4+OverheadBytes
				case log[k.index] == k.term:
					want = fmt.Sprintf("%d@%d", k.index, k.term)
				default:
					want = outcome.ErrDropped.Error()
				}
				if got := told(k.w); got != want {
					rt.Fatalf("proposal %d@%d was told %s, want %s (committed %d)", k.index, k.term, got, want, committed)
				}
			}
			twin = waiting
			if c.bytes.Load() != bytes || c.ring.Unanswered() != len(waiting) {
				rt.Fatalf("%d bytes of %d commands are pending, want %d of %d", c.bytes.Load(), c.ring.Unanswered(), bytes, len(waiting))
			}
		}
		c.Abandon(errors.New("end"))
		for _, k := range twin {
			if got := told(k.w); got != outcome.ErrIndeterminate.Error()+": end" {
				rt.Fatalf("abandoned proposal %d@%d was told %s", k.index, k.term, got)
			}
		}
	})
}

// A leader's own commands are answered up to the commit index, and no other leader's.
func TestAnswerOwn(t *testing.T) {
	ts := NewQueue(Settings{Budget: &budget.Budget{}})
	old, mine, late := NewWaiter(), NewWaiter(), NewWaiter()
	ts.register(2, 5, []Proposal{{Command: []byte("old"), Waiter: old}}, false)
	ts.register(4, 7, []Proposal{{Command: []byte("mine"), Waiter: mine}, {Command: []byte("late"), Waiter: late}}, false)
	ts.AnswerOwn(3, 100, 0) // another term's leader
	ts.AnswerOwn(4, 7, 0)
	if got := told(mine); got != "7@4" {
		t.Errorf("have %s", got)
	}
	if old.Answered() || late.Answered() {
		t.Error("a proposal of another term, or beyond the commit index, was answered")
	}
	if ts.ring.Unanswered() != 2 {
		t.Errorf("%d pending proposals left, want 2", ts.ring.Unanswered())
	}
}

// A queue ends while a turn proposes from it. If a client is told that its command was not taken, that is the
// truth, and each is told once.
func TestAQueueEndsWhileATurnProposes(t *testing.T) {
	cause := errors.New("end")
	for try := range 2000 {
		q := NewQueue(Settings{Budget: &budget.Budget{}, MaxBytes: 2 * (4 + OverheadBytes)})
		clients, batch := waitersFor(3)
		for _, w := range clients {
			w.Reset()
		}
		var all sync.WaitGroup
		abandon := func() { all.Go(func() { q.Abandon(cause) }) }
		if try == 1 {
			q.Abandon(cause)
		}
		if try%2 == 1 {
			abandon()
		}
		q.Offer(batch, 0)
		if try == 0 {
			q.Abandon(cause)
		}
		proposed := map[*Waiter]bool{}
		if try%2 == 0 {
			abandon()
		}
		for batch, index := q.Next(), uint64(1); len(batch) > 0; batch = q.Accept(1, index, batch, false) {
			for _, p := range batch {
				proposed[p.Waiter] = true
			}
		}
		clear(batch) // as the next turn does
		all.Wait()
		for i, w := range clients {
			want := outcome.WithCause(outcome.ErrStopped, cause).Error()
			if proposed[w] {
				want = outcome.WithCause(outcome.ErrIndeterminate, cause).Error()
			}
			if got := told(w); got != want && !(!proposed[w] && got == outcome.WithCause(outcome.ErrIndeterminate, cause).Error()) {
				t.Fatalf("try %d: client %d is told %s, and proposed: %t", try, i, got, proposed[w])
			}
		}
		if held := q.bytes.Load(); held != 0 {
			t.Fatalf("try %d: %d bytes are held", try, held)
		}
	}
}
