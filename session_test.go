package millrace_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/millrace/millrace"
)

// A Session keeps the lowest number without an outcome, in whatever order commands end.
func TestSessionKeepsTheLowestNumber(t *testing.T) {
	s := millrace.ContinueSession(millrace.SessionID{Birth: 1}, 5)
	a, b, c := s.Next(), s.NextMany(2), s.Next()
	if a.Number != 5 || b.Number != 6 || b.Following(1).Number != 7 || c.Number != 8 || c.Low != 5 || a.Session != s.ID() {
		t.Fatalf("the marks are %+v, %+v and %+v", a, b, c)
	}
	for i, row := range []struct {
		end millrace.SessionMark
		low uint64
	}{{b, 5}, {c, 5}, {a, 7}, {a, 7}, {b.Following(1), 13}} {
		s.End(row.end)
		if next := s.Next(); next.Low != row.low {
			t.Fatalf("after end %d the lowest number is %d, want %d", i, next.Low, row.low)
		} else if i < 4 {
			s.End(next)
		}
	}
	if m := millrace.ContinueSession(s.ID(), 0).Next(); m.Number != 1 || m.Low != 1 {
		t.Errorf("a session that continues at 0 begins with %+v", m)
	}
}

// Outcomes end the numbers of a Session by themselves: of each way to propose, and of refusals. What is
// unknown stays open until the same command is proposed again.
func TestSessionHearsOfOutcomes(t *testing.T) {
	c := three(t, func(uint64) millrace.Machine[int64, int64] {
		return millrace.InMemory(&counter{}, millrace.Binary[int64]()).Results(millrace.Binary[int64]())
	})
	leader, _ := c.leader(t)
	s, ctx := leader.NewSession(), t.Context()
	low := func(want uint64, what string) {
		t.Helper()
		m := s.Next()
		if s.End(m); m.Low != want {
			t.Errorf("after %s the lowest number is %d, want %d", what, m.Low, want)
		}
	}
	if _, err := leader.Propose(ctx, 1, millrace.InSession(s.Next())); err != nil {
		t.Fatal(err)
	}
	low(2, "Propose")
	if _, err := leader.Commit(ctx, 1, millrace.InSession(s.Next())); err != nil {
		t.Fatal(err)
	}
	if err := leader.WaitReady(ctx); err != nil { // it is applied, too
		t.Fatal(err)
	}
	low(4, "Commit")
	p, err := leader.Submit(1, millrace.InSession(s.Next()))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	low(6, "Submit")
	done := millrace.NewCompletions[int64](10)
	if taken, err := leader.SubmitMany([]int64{1, 1, 1}, []uint64{1, 2, 3}, done, millrace.InSession(s.NextMany(3))); taken != 3 || err != nil {
		t.Fatal(taken, err)
	}
	for n := 0; n < 3; n += len(done.Take(nil)) {
		<-done.Ready()
	}
	low(10, "SubmitMany")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	m := s.Next()
	if _, err := leader.Propose(ended, 1, millrace.InSession(m)); !errors.Is(err, context.Canceled) || millrace.MayHaveCommitted(err) {
		t.Fatal(err)
	}
	low(12, "a refusal")

	// The leader cannot commit: the outcome is unknown.
	c.isolate(leader, true)
	short, cancel := context.WithCancel(ctx)
	go func() {
		for leader.Status().LastIndex == leader.Status().Committed {
			select {
			case <-leader.Failed():
			default:
			}
		}
		cancel()
	}()
	m = s.Next()
	_, err = leader.Propose(short, 100, millrace.InSession(m))
	if !errors.Is(err, millrace.ErrIndeterminate) {
		t.Fatalf("cut off: %v", err)
	}
	low(m.Number, "an unknown outcome")
	c.isolate(leader, false)
	sum, err := leader.Propose(ctx, 100, millrace.InSession(m))
	if err != nil || sum != 106 {
		t.Fatalf("again: %d, %v", sum, err)
	}
	low(m.Number+2, "the second attempt")
}

// Many goroutines share a Session, and each command is applied once.
func TestSessionOfManyGoroutines(t *testing.T) {
	n := open(t, alone(t), millrace.InMemory(&counter{}, millrace.Binary[int64]()))
	s := n.NewSession()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			for range 50 {
				if _, err := n.Propose(t.Context(), 1, millrace.InSession(s.Next())); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if m := s.Next(); m.Number != 1001 || m.Low != 1001 {
		t.Errorf("the next mark is %+v", m)
	}
	if sum, err := n.Propose(t.Context(), 0); sum != 1000 || err != nil {
		t.Errorf("the sum is %d, %v", sum, err)
	}
}
