package sched

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/internal/turn"
)

// aGroup is a Turner on a script.
type aGroup struct {
	seat    Seat
	turns   int
	left    bool
	during  func()
	again   bool
	due     int64 // ticks after each turn
	verdict Verdict
	given   int   // under the lock of the shard,
	taken   int   // and by a turn
	yes     int64 // the tick until which it sleeps if the answer is yes
}

func (g *aGroup) Begin(time.Duration, bool) { g.taken, g.given = g.taken+g.given, 0 }

func (g *aGroup) Turn(at Time, crowded bool, out Outbox) (again bool, due int64) {
	g.turns++
	if f := g.during; f != nil {
		g.during = nil
		f()
	}
	return g.again, at.Ticks + g.due
}
func (g *aGroup) Deadline(Time) Verdict               { return g.verdict }
func (g *aGroup) Confirmed(Time, int64) (int64, bool) { return g.yes, g.yes > 0 }
func (g *aGroup) Left()                               { g.left = true }
func (g *aGroup) Gathers() bool                       { return true }
func (g *aGroup) Gathered(time.Duration)              {}

// bench is a shard with groups, and a clock that stands.
type bench struct {
	*Shard
	t         *testing.T
	groups    []*aGroup
	workers   []*Worker
	now       time.Duration
	at        Time
	hastened  int
	flushed   int
	yes       bool // to all questions
	questions int
	wakes     int
}

func (b *bench) Flush() { b.flushed++ }
func (b *bench) Wake()  { b.wakes++ }
func (b *bench) Stop()  {}

func newBench(t *testing.T, groups int) *bench {
	b := &bench{t: t}
	b.Shard = New(Settings{
		Now: func() time.Duration { return b.now }, LongTurn: time.Second, Hasten: func() { b.hastened++ },
		Outbox: func() Outbox { return b },
		Answer: func(asked []Question) {
			for i := range asked {
				asked[i].Yes = b.yes
				b.questions++
			}
		},
	})
	b.Start(func(w env.Worker) env.Task {
		b.workers = append(b.workers, w.(*Worker))
		return b
	})
	for range groups {
		g := &aGroup{due: turn.Never / 2}
		b.groups = append(b.groups, g)
		b.Enter(&g.seat, g, func(Time) {})
	}
	b.run()
	return b
}

// run runs turns until none waits, and returns how many ran.
func (b *bench) run() (n uint64) {
	before, _ := b.Counts()
	for b.workers[len(b.workers)-1].RunOnce() {
	}
	after, _ := b.Counts()
	return after - before
}

// pass lets ticks pass, and runs what is due.
func (b *bench) pass(ticks int64) (turns uint64) {
	b.at.Ticks += ticks
	b.Advance(b.at)
	return b.run()
}

// A group has one turn for all wakes before it, and another one for a wake while its turn runs.
func TestWakeIsNotLost(t *testing.T) {
	b := newBench(t, 2)
	g := b.groups[0]
	g.seat.Wake()
	g.seat.WakeUrgently()
	if n := b.run(); n != 1 {
		t.Errorf("%d turns, want 1", n)
	}
	g.during = g.seat.Wake
	g.seat.Wake()
	if n := b.run(); n != 2 {
		t.Errorf("%d turns, want one for the wake and one for that during it", n)
	}
	before := b.wakes
	g.seat.WakeLazily()
	if n := b.run(); n != 0 || b.wakes != before {
		t.Errorf("a lazy wake has %d turns and %d wakes before the next tick", n, b.wakes-before)
	}
	if n := b.pass(1); n != 1 {
		t.Errorf("%d turns, want that of the lazy wake", n)
	}
}

// A turn begins with all that was given before it, once. What is given while it runs is for the next.
func TestATurnBeginsWithWhatWasGiven(t *testing.T) {
	b := newBench(t, 1)
	g := b.groups[0]
	give := func() {
		b.Guard().Lock()
		g.given++
		b.Guard().Unlock()
		g.seat.Wake()
	}
	give()
	give()
	during := 0
	g.during = func() {
		give()
		during = g.taken
	}
	if n := b.run(); n != 2 || during != 2 || g.taken != 3 {
		t.Errorf("%d turns; the first has %d inputs of 2, both have %d of 3", n, during, g.taken)
	}
	give()
	w := b.workers[0]
	w.Begin()
	b.now += 2 * time.Second
	if left, _ := b.TakeOver(); left != Turner(g) {
		t.Fatal("setup: the turn is not left behind")
	}
	give() // to a group that is left behind
	b.run()
	if g.taken != 4 {
		t.Errorf("%d inputs are taken while the turn hangs, want 4", g.taken)
	}
	w.End(&g.seat, false, turn.Never)
	if b.run(); g.taken != 5 {
		t.Errorf("%d inputs are taken when it has returned, want 5", g.taken)
	}
}

// Groups that are always urgent do not starve the others, and do not wait for them.
func TestUrgentGroupsDoNotStarveOthers(t *testing.T) {
	b := newBench(t, 3)
	w, other, others := b.workers[0], &b.groups[2].seat, 0
	other.Wake()
	for n := range 10 * (maxUrgentInARow + 1) {
		b.groups[0].seat.WakeUrgently()
		b.groups[1].seat.WakeUrgently()
		seat, _, _ := w.Begin()
		if seat == nil {
			t.Fatalf("turn %d is of no group, and three wait", n)
		}
		w.End(seat, false, turn.Never)
		if seat == other {
			others++
			other.Wake()
		}
	}
	if others != 10 {
		t.Errorf("in %d turns the group that is not urgent had %d, want 10", 10*(maxUrgentInARow+1), others)
	}
}

// At its deadline a group runs, sleeps until another tick, or is asked about: with a yes it sleeps, and
// with a no it runs. One that is awake runs in any case.
func TestDeadlines(t *testing.T) {
	for name, c := range map[string]struct {
		verdict Verdict
		yes     bool
		woken   bool
		turns   uint64
	}{
		"runs":            {turns: 1},
		"sleeps":          {verdict: Verdict{Due: 100}},
		"asks, and no":    {verdict: Verdict{Asks: true}, turns: 1},
		"asks, and yes":   {verdict: Verdict{Asks: true}, yes: true},
		"sleeps no more":  {verdict: Verdict{Due: 100}, woken: true, turns: 1},
		"sleeps too late": {verdict: Verdict{Due: 5}, turns: 1},
	} {
		b := newBench(t, 1)
		g := b.groups[0]
		g.due, g.yes = 5, 100
		g.seat.Wake()
		b.run()
		g.verdict, b.yes = c.verdict, c.yes
		if n := b.pass(4); n != 0 {
			t.Fatalf("%s: %d turns before the deadline", name, n)
		}
		if c.woken {
			g.seat.Wake()
		}
		if n := b.pass(1); n != c.turns {
			t.Errorf("%s: %d turns at the deadline, want %d", name, n, c.turns)
		}
		if asks := c.verdict.Asks; asks != (b.questions == 1) {
			t.Errorf("%s: %d questions", name, b.questions)
		}
		if c.turns == 0 && g.seat.Due() != 100 {
			t.Errorf("%s: it is due at tick %d", name, g.seat.Due())
		}
	}
}

// A turn that hangs is left behind: the others go on, its group gets a turn when it has returned, and its
// worker is stopped. A group that left meanwhile is told when its turn has ended.
func TestHungTurnIsTakenOver(t *testing.T) {
	b := newBench(t, 2)
	hangs, other := b.groups[0], b.groups[1]
	hangs.seat.Wake()
	w := b.workers[0]
	seat, _, _ := w.Begin()
	if left, _ := b.TakeOver(); seat != &hangs.seat || left != nil || b.Hangs() {
		t.Fatal("a turn that has just begun hangs")
	}
	b.now += 2 * time.Second
	if !b.Hangs() {
		t.Error("a turn of two seconds does not hang")
	}
	if left, ran := b.TakeOver(); left != Turner(hangs) || ran != 2*time.Second {
		t.Fatalf("%v is left behind after %v", left, ran)
	}
	if ran, is := hangs.seat.Runs(); !is || ran != 2*time.Second || w.Turn() != Turner(hangs) {
		t.Errorf("the turn of the group runs %t, for %v", is, ran)
	}
	other.seat.Wake()
	hangs.seat.Wake()
	if n := b.run(); n != 1 || other.turns != 2 {
		t.Errorf("%d turns beside the one that hangs", n)
	}
	if _, hung := b.Counts(); hung != 1 || hangs.seat.Leave() {
		t.Errorf("%d turns hang, and the group has left", hung)
	}
	w.End(seat, false, turn.Never)
	b.Reap()
	if _, hung := b.Counts(); hung != 0 || !hangs.left || len(b.Workers()) != 1 {
		t.Errorf("afterwards %d hang, left %t, workers %d", hung, hangs.left, len(b.Workers()))
	}
	hangs.seat.Wake()
	if n := b.run(); n != 0 {
		t.Error("a group that has left gets a turn")
	}
}

// What turns send waits while other groups have turns, but not for many turns.
func TestOutboxIsFlushed(t *testing.T) {
	b := newBench(t, 3*maxUnsentTurns)
	before := b.flushed
	for _, g := range b.groups {
		g.seat.Wake()
	}
	b.run()
	if n := b.flushed - before; n != 3 {
		t.Errorf("%d turns in a row have flushed %d times, want 3", len(b.groups), n)
	}
}

// A worker that has done turns of several groups lets other goroutines run before it sends. What they bring
// is sent together with it. It does not wait a second time, nor for a group alone, nor with what is urgent,
// nor after a wait that took long.
func TestWorkerGathersBeforeItSends(t *testing.T) {
	b := newBench(t, 4)
	w, groups := b.workers[0], b.groups
	step := func(gathers, more bool, flushes int) {
		t.Helper()
		before := b.flushed
		if got := w.RunOnce(); got != more || w.Gathers() != gathers || b.flushed-before != flushes {
			t.Errorf("more %t, gathers %t, %d flushes; want %t, %t, %d", got, w.Gathers(), b.flushed-before, more, gathers, flushes)
		}
	}
	groups[0].seat.Wake()
	step(false, false, 1) // alone
	wake := func() {
		groups[0].seat.Wake()
		groups[1].seat.Wake()
	}
	wake()
	step(false, true, 0)
	step(true, true, 0)
	w.Gathered(0)
	groups[2].seat.Wake()
	step(true, true, 0) // with the messages of the third
	w.Gathered(0)
	step(false, false, 1) // nothing came
	wake()
	groups[2].seat.WakeUrgently()
	step(false, true, 0)
	step(false, true, 0)
	step(false, false, 1) // one was urgent
	wake()
	step(false, true, 0)
	step(true, true, 0)
	w.Gathered(time.Second)
	step(false, false, 1)
	wake()
	step(false, true, 0)
	step(false, false, 1) // the process is busy
	b.now += time.Minute
	wake()
	step(false, true, 0)
	step(true, true, 0)
	before := b.flushed
	if w.Stop(); b.flushed != before+1 {
		t.Error("a worker that stops drops what it holds")
	}
}

// Many groups are woken with one wake of their shard, in their order, and the list can be reused.
func TestWoken(t *testing.T) {
	a, b := newBench(t, 3), newBench(t, 3)
	var w Woken
	for range 2 {
		beforeA, beforeB := a.wakes, b.wakes
		for i := range 3 {
			w.Add(&a.groups[2-i].seat)
			w.Add(&b.groups[i].seat)
		}
		w.Wake()
		if a.wakes-beforeA != 1 || b.wakes-beforeB != 1 || len(w) != 0 {
			t.Errorf("%d and %d wakes of two shards, want one of each", a.wakes-beforeA, b.wakes-beforeB)
		}
		var order []int
		for seat, _, _ := a.workers[0].Begin(); seat != nil; seat, _, _ = a.workers[0].Begin() {
			order = append(order, slices.IndexFunc(a.groups, func(g *aGroup) bool { return &g.seat == seat }))
			a.workers[0].End(seat, false, turn.Never)
		}
		if !slices.Equal(order, []int{2, 1, 0}) {
			t.Errorf("the turns are of groups %v", order)
		}
		b.run()
	}
}

// A shard is at rest if nothing runs, waits, or is due in fewer ticks.
func TestRest(t *testing.T) {
	b := newBench(t, 1)
	g := b.groups[0]
	g.due = 3
	g.seat.Wake()
	if b.RestsFor(1) {
		t.Error("it rests while a group waits")
	}
	b.run()
	if !b.RestsFor(3) || b.RestsFor(4) {
		t.Errorf("a group is due in 3 ticks: it rests for 3 %t, for 4 %t", b.RestsFor(3), b.RestsFor(4))
	}
	g.seat.WakeLazily()
	if b.RestsFor(1) || b.hastened == 0 {
		t.Error("it rests while a group waits for the next tick")
	}
}

// A turn ends without the lock if nothing holds it, and nothing takes it for one under way. A group that
// leaves hears of its last turn only if that was under way, and none hangs.
func TestLeaveDuringATurn(t *testing.T) {
	for name, during := range map[string]bool{"during": true, "after": false} {
		b := newBench(t, 2)
		g, idle := b.groups[0], false
		leave := func() { idle = g.seat.Leave() }
		if g.seat.Wake(); during {
			g.during = leave
		}
		b.run()
		if b.now += 2 * time.Second; b.Hangs() {
			t.Errorf("%s: a turn that has ended hangs", name)
		}
		if _, runs := g.seat.Runs(); runs || b.workers[0].Turn() != nil || !b.RestsFor(1) {
			t.Errorf("%s: a turn that has ended runs", name)
		}
		if left, _ := b.TakeOver(); left != nil {
			t.Errorf("%s: a turn that has ended is left behind", name)
		}
		if !during {
			leave()
		}
		if idle == during || g.left != during {
			t.Errorf("%s a turn: the group that leaves is idle %t, told of its last turn %t", name, idle, g.left)
		}
		if b.workers[0].turn == &g.seat {
			t.Errorf("%s: the worker keeps a group that has left", name)
		}
	}
}

// A turn that ends without the lock continues with the groups that wait, and moves none in the wheel. Those
// that are due together run in the order of their latest turns.
func TestTurnsEndWithoutTheLock(t *testing.T) {
	b := newBench(t, 4)
	for _, g := range b.groups {
		g.due = 5
		g.seat.Wake()
		b.run()
	}
	for _, i := range []int{0, 3, 2, 1} {
		b.groups[i].seat.Wake()
	}
	b.groups[0].due = 4
	w := b.workers[0]
	for i, locked := range []bool{true, false, false, false} { // the first is due at another tick than before
		seat, at, crowded := w.Begin()
		if crowded != (i < 3) {
			t.Errorf("turn %d is crowded %t", i, crowded)
		}
		again, due := seat.turner.Turn(at, crowded, b)
		if w.due == due == locked {
			t.Fatalf("setup: turn %d ends at tick %d, as before %t", i, due, !locked)
		}
		if more, alone := w.End(seat, again, due); more != (i < 3) || alone != (i == 3) || w.phase.Load() != ended {
			t.Errorf("after turn %d: more %t, alone %t", i, more, alone)
		}
	}
	var order []int
	for i, g := range b.groups {
		g.during = func() { order = append(order, i) }
	}
	if b.pass(4); !slices.Equal(order, []int{0}) {
		t.Errorf("at its tick: turns of %v", order)
	}
	if b.pass(1); !slices.Equal(order, []int{0, 3, 2, 1}) {
		t.Errorf("at the next tick: turns of %v", order)
	}
}

// racing is a group that is woken while its turns run.
type racing struct {
	aGroup
	given, seen atomic.Int64
	ends        chan struct{}
	lefts       atomic.Int64
}

func (g *racing) Turn(at Time, crowded bool, out Outbox) (again bool, due int64) {
	g.turns++
	if n := g.given.Load(); n != g.seen.Swap(n) {
		select {
		case g.ends <- struct{}{}:
		default:
		}
	}
	return false, at.Ticks/8*8 + 1<<20
}
func (g *racing) Deadline(Time) Verdict { g.turns++; return Verdict{} } // with the lock: no turn runs
func (g *racing) Left()                 { g.lefts.Add(1) }

// racingTask runs a worker in a goroutine of its own.
type racingTask struct{ wakes chan struct{} }

func (t racingTask) Wake() {
	select {
	case t.wakes <- struct{}{}:
	default:
	}
}
func (t racingTask) Stop() { close(t.wakes) }

// While turns end without the lock, groups are woken, time passes, and groups leave. No wake is lost. A
// deadline finds no turn under way, and each group that leaves is told so once. The race detector judges,
// too.
func TestTurnsEndWhileGroupsAreWoken(t *testing.T) {
	out := newBench(t, 0)
	s := New(Settings{Now: func() time.Duration { return 0 }, LongTurn: time.Hour, Hasten: func() {}, Outbox: func() Outbox { return out }})
	task, stopped := racingTask{make(chan struct{}, 1)}, make(chan struct{})
	s.Start(func(w env.Worker) env.Task {
		go func() {
			defer close(stopped)
			for range task.wakes {
				for w.RunOnce() {
				}
			}
		}()
		return task
	})
	var all sync.WaitGroup
	for range 3 {
		g := &racing{ends: make(chan struct{}, 1)}
		s.Enter(&g.seat, g, func(Time) {})
		all.Go(func() {
			for n := range int64(1000) {
				g.given.Add(1)
				if n%3 == 0 {
					g.seat.WakeUrgently()
				} else {
					g.seat.Wake()
				}
				for g.seen.Load() <= n {
					<-g.ends
				}
			}
			idle := int64(0)
			if g.seat.Wake(); g.seat.Leave() {
				idle = 1
			}
			for range 4 { // a last turn ends while another begins
				s.Advance(Time{})
			}
			g.due = idle
		})
		defer func() {
			if g.due+g.lefts.Load() != 1 {
				t.Errorf("a group that leaves is told %d times that its last turn has ended, and %d times that none was under way", g.lefts.Load(), g.due)
			}
		}()
	}
	for tick := range int64(5000) {
		s.Advance(Time{Ticks: tick << 10})
		s.Hangs()
	}
	all.Wait()
	s.task.Stop()
	<-stopped
}
