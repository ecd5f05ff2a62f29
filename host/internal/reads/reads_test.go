package reads

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/internal/completion"
)

// A lease is counted from when its round was asked, and ends with its term, with the permission, with the
// machine that it was for, and with the promise less the drift.
func TestLeaseEnds(t *testing.T) {
	lead := func() (*script, *Queue, *Round) {
		s, q, r := begin(1 << 20)
		q.Start(&Read{}, 0)
		r.Step(Turn{Leader: self, Term: 3}, anyOther)
		s.now = 10
		r.BeforeReady(7, 3, true)
		s.applied = 7
		r.Confirmed(s.number, 7, 3, 100)
		return s, q, r
	}
	s, q, _ := lead()
	l, index, ok := q.Lease(0, 0.5)
	if !ok || index != 7 || !l.Holds() {
		t.Fatalf("no lease after a round: %t at %d", ok, index)
	}
	if s.now = 49; !l.Holds() {
		t.Error("it ends before half of the promise, and clocks drift by half")
	}
	if s.now = 50; l.Holds() {
		t.Error("it holds longer than half of the promise, counted from the question")
	}
	if _, _, ok := q.Lease(20, 0); ok {
		t.Error("the round was 50 ago, and may be 20 old")
	}
	for what, change := range map[string]func(*script, *Queue, *Round){
		"the drift has no sense": func(s *script, q *Queue, r *Round) {},
		"another term":           func(s *script, q *Queue, r *Round) { r.BeforeReady(7, 4, true) },
		"a hand-over":            func(s *script, q *Queue, r *Round) { r.BeforeReady(7, 3, false) },
		"a halt":                 func(s *script, q *Queue, r *Round) { s.halts++; q.Suspend(errors.New("halted")) },
		"the end":                func(s *script, q *Queue, r *Round) { s.ended = true },
		"what is not applied":    func(s *script, q *Queue, r *Round) { r.BeforeReady(8, 3, true) },
	} {
		s, q, r := lead()
		l, _, _ := q.Lease(0, 0)
		change(s, q, r)
		drift := 0.0
		if what == "the drift has no sense" {
			drift = 1
		} else if what != "what is not applied" && l.Holds() {
			t.Errorf("a lease holds after %s", what)
		}
		if _, _, ok := q.Lease(0, drift); ok {
			t.Errorf("there is a lease: %s", what)
		}
	}
	if (Lease{}).Holds() {
		t.Error("no lease holds")
	}
}

// A question of another member joins the next round of the leader, and not the one under way. A member that
// does not lead, and a stranger, get no answer.
func TestQuestionsOfOthers(t *testing.T) {
	s, q, r := begin(1 << 20)
	at := Turn{Leader: self, Term: 3}
	ask := func(from, number uint64) { q.Enqueue(Record{From: from, Group: 5, Life: 9, Number: number}, true) }
	ask(2, 1)
	r.Step(at, anyOther)
	ask(3, 1)
	ask(2, 2)
	if r.Step(at, anyOther); len(s.rounds) != 1 {
		t.Fatalf("rounds %v, want one", s.rounds)
	}
	r.Confirmed(s.number, 40, 3, 0)
	if len(s.sent) != 1 || s.sent[0].to != 2 || s.sent[0].Number != 1 || s.sent[0].Index != 40 || s.sent[0].question {
		t.Fatalf("%+v, want the answer to the first question", s.sent)
	}
	r.Step(at, anyOther)
	r.Confirmed(s.number, 41, 3, 0)
	if len(s.sent) != 3 || s.sent[1].Index != 41 || s.sent[2].Index != 41 {
		t.Fatalf("%+v, want both answers of the next round", s.sent[1:])
	}
	ask(self, 9)
	if again := r.Step(at, anyOther); again || len(s.rounds) != 2 {
		t.Errorf("a stranger's question makes a round")
	}
	ask(2, 3)
	if r.Step(Turn{Leader: 3, Term: 4}, anyOther); len(r.waiting) > 0 || len(s.rounds) != 2 {
		t.Errorf("a member that does not lead keeps a question")
	}
}

// A follower repeats its question after a heartbeat interval, and a leader one that its core has not taken.
func TestQuestionsAreRepeated(t *testing.T) {
	for _, leader := range []uint64{self, 2} {
		s, q, r := begin(1 << 20)
		s.busy = leader == self
		q.Start(&Read{}, 0)
		at := Turn{Leader: leader, Term: 3, Tick: 100}
		r.Step(at, anyOther)
		if due, is := r.Due(at.Tick); !is || due != 100+interval || r.Left(at) {
			t.Errorf("leader %d: due %d, %t", leader, due, is)
		}
		at.Tick += interval - 1
		if r.Step(at, anyOther); s.number != 1 {
			t.Errorf("leader %d: asks again after %d ticks", leader, interval-1)
		}
		at.Tick++
		at.Holds = true
		if r.Left(at) {
			t.Errorf("leader %d: a core that may be forgotten is asked", leader)
		}
		if at.Holds = false; !r.Left(at) {
			t.Errorf("leader %d: does not ask again", leader)
		}
		s.busy = false
		if r.Step(at, anyOther); s.number != 2 {
			t.Errorf("leader %d: %d questions", leader, s.number)
		}
		if _, is := r.Due(at.Tick); is != (leader != self) {
			t.Errorf("leader %d: due is %t, and the core repeats its own rounds", leader, is)
		}
		if r.Dropped(); !r.repeats {
			t.Error("a dropped round is not repeated")
		}
	}
}

// A function runs once, with the machine to itself, unless it was given up before. Its panic and its end are
// the error of its read.
func TestFunctionsBetween(t *testing.T) {
	s, q, _ := begin(1 << 20)
	s.applied = 9
	var machine sync.Mutex
	ran := ""
	var given, fine, panics, ends Read
	q.StartBetween(&given, func() { ran += "given up " })
	q.StartBetween(&fine, func() {
		if ran += "fine"; machine.TryLock() {
			t.Error("the machine may be called meanwhile")
		}
	})
	q.StartBetween(&panics, func() { panic("as the test says") })
	q.StartBetween(&ends, func() { runtime.Goexit() })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := given.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a read that was given up: %v", err)
	}
	for s.excluded = 0; q.betweens.Load() > 0; s.excluded++ {
		var lane sync.WaitGroup
		lane.Go(func() { q.RunBetween(&machine) })
		lane.Wait()
	}
	if at, done, err := fine.Poll(); !done || err != nil || at.Index != 9 || ran != "fine" {
		t.Errorf("%+v, %t, %v, and %q ran", at, done, err, ran)
	}
	if _, _, err := panics.Poll(); err == nil || !strings.Contains(err.Error(), "as the test says") {
		t.Errorf("a panic: %v", err)
	}
	if _, _, err := ends.Poll(); err == nil || !strings.Contains(err.Error(), "Goexit") {
		t.Errorf("an end of the goroutine: %v", err)
	}
	if used := q.settings.Budget.Used(); used != 0 {
		t.Errorf("%d bytes are left", used)
	}
}

// A halted machine refuses reads until it works again, and the questions of others are taken meanwhile. A
// group that has ended does not come back.
func TestSuspendedAndClosed(t *testing.T) {
	_, q, r := begin(1 << 20)
	halted, ended := errors.New("halted"), errors.New("ended")
	ends := func() error {
		var read Read
		q.StartApplied(&read, 0)
		_, _, err := read.Poll()
		return err
	}
	q.Suspend(halted)
	if err := ends(); err != halted {
		t.Errorf("a read of a halted machine: %v", err)
	}
	q.Enqueue(Record{From: 2, Number: 1}, true)
	if !q.HasRecords() {
		t.Error("a question is dropped because the machine is halted")
	}
	r.Step(Turn{Leader: self, Term: 1}, anyOther)
	if q.Resume(); ends() != nil {
		t.Error("a machine that works again is not read")
	}
	q.Suspend(halted)
	q.Close(ended)
	q.Close(errors.New("later"))
	q.Suspend(halted)
	q.Resume()
	if err := ends(); err != ended {
		t.Errorf("a read after the end: %v", err)
	}
	if q.Enqueue(Record{From: 2, Number: 2}, true); q.HasRecords() {
		t.Error("a group that has ended keeps questions")
	}
	if c := q.Counts(); c.AtLeast != 1 {
		t.Errorf("%d reads are counted, want the one that was answered", c.AtLeast)
	}
}

// What is applied while a read begins to wait for it ends the read.
func TestAppliedMeanwhile(t *testing.T) {
	s, q, _ := begin(1 << 20)
	s.soon = 3
	var r Read
	q.StartApplied(&r, 3)
	if _, done, err := r.Poll(); !done || err != nil {
		t.Errorf("%t, %v, and no lane will say that entry 3 is applied", done, err)
	}
}

// A read ends while it is waited for.
func TestWait(t *testing.T) {
	s, q, _ := begin(1 << 20)
	var r Read
	q.StartApplied(&r, 3)
	done := make(chan outcome.ReadAt)
	go func() {
		at, _ := r.Wait(context.Background())
		done <- at
	}()
	s.applied = 3
	q.Applied(3)
	if at := <-done; at.Index != 3 {
		t.Errorf("%+v", at)
	}
	q.Start(&r, time.Second)
	if _, _, err := r.Poll(); !errors.Is(err, errUsed) {
		t.Errorf("a read that was started twice: %v", err)
	}
}

// A Wait whose context has ended may come at any moment of Start. It does not wait for a leader.
func TestGivenUpWhileItBegins(t *testing.T) {
	_, q, _ := begin(1 << 20)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	var r Read
	ended := make(chan error, 1)
	q.settings.Now = func() time.Duration {
		q.settings.Now = nil
		go func() {
			_, err := r.Wait(over)
			ended <- err
		}()
		select { // Start goes on when the Wait has ended, or has begun to wait
		case err := <-ended:
			ended <- err
		case <-time.After(10 * time.Millisecond):
		}
		return 0
	}
	q.Start(&r, 0)
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) && !errors.Is(err, errEmpty) {
			t.Error(err)
		}
	case <-time.After(time.Second):
		t.Error("a read is waited for although the context has ended")
	}
}

// lockLooker counts reads that have ended, and looks whether the lock of their queue is held meanwhile.
type lockLooker struct {
	q      *Queue
	told   int
	locked bool
	budget int64 // the most that was used meanwhile
}

func (l *lockLooker) Told(*completion.Together) {
	l.told++
	l.budget = max(l.budget, l.q.settings.Budget.Used())
	if !l.q.mu.TryLock() {
		l.locked = true
		return
	}
	l.q.mu.Unlock()
}

// Readers that are told may begin the next read at once, on another core. No goroutine holds the lock
// meanwhile, or they would queue at it, and memory is free for them.
func TestReadersAreToldWithoutTheLock(t *testing.T) {
	for what, end := range map[string]func(*script, *Queue, *Round){
		"a round":          func(s *script, q *Queue, r *Round) { s.applied = 7; r.Confirmed(s.number, 7, 3, 0) },
		"an index":         func(s *script, q *Queue, r *Round) { r.Confirmed(s.number, 7, 3, 0); s.applied = 7; q.Applied(7) },
		"a halt":           func(s *script, q *Queue, r *Round) { q.Suspend(errors.New("halted")) },
		"the end":          func(s *script, q *Queue, r *Round) { q.Close(errors.New("closed")) },
		"not enough space": func(s *script, q *Queue, r *Round) { q.Close(errors.New("closed")) },
	} {
		space := int64(5 * bytesOf) // a group may use as much as is free then
		if what == "not enough space" {
			space--
		}
		s, q, r := begin(space)
		l := &lockLooker{q: q}
		var reads [3]Read
		for i := range reads {
			reads[i].OnDone(l)
			q.Start(&reads[i], 0)
		}
		r.Step(Turn{Leader: self, Term: 3}, anyOther)
		if end(s, q, r); l.told != len(reads) || l.locked {
			t.Errorf("%s: %d of %d reads are told, under the lock: %t", what, l.told, len(reads), l.locked)
		}
		if l.budget != 0 && what != "not enough space" { // the read that is refused is told while the others wait
			t.Errorf("%s: a read is told while %d bytes are not returned", what, l.budget)
		}
		if used := q.settings.Budget.Used(); used != 0 || q.bytes != 0 {
			t.Errorf("%s: reads that have ended still have %d and %d bytes", what, used, q.bytes)
		}
	}
}
