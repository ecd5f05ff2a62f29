package apply

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/raft/raftpb"
)

// bench is lanes that work when the test says so, in a time that it sets.
type bench struct {
	Lanes
	now    time.Duration
	rounds []uint64 // the groups, in order
	events []event.Event
	woken  int
}

type task struct{ b *bench }

func (t task) Wake() { t.b.woken++ }
func (t task) Stop() {}

func newBench(lanes int) *bench {
	b := &bench{}
	b.Open(Wiring{
		Now: func() time.Duration { return b.now }, Ticks: func() int64 { return int64(b.now / time.Millisecond) }, WaitTicks: int64(Wait / time.Millisecond),
		Start: func(string, env.Worker) env.Task { return task{b} },
		Event: func(e event.Event) { b.events = append(b.events, e) },
	}, lanes)
	return b
}

// owner is a group whose rounds take a while, and leave nothing.
type owner struct {
	b        *bench
	id       uint64
	leads    bool
	takes    time.Duration
	failed   bool
	released int
	seat     Seat
}

func (b *bench) group(id uint64) *owner {
	o := &owner{b: b, id: id}
	o.seat.Init(o)
	return o
}

func (o *owner) ID() uint64           { return o.id }
func (o *owner) Leads() bool          { return o.leads }
func (o *owner) Wants(more bool) bool { return more && !o.failed }
func (o *owner) Released()            { o.released++ }
func (o *owner) Round(int64) bool {
	o.b.rounds = append(o.b.rounds, o.id)
	o.b.now += o.takes
	return false
}

// run lets one lane work until it is idle, and returns the groups that had a round.
func (b *bench) run() []uint64 {
	b.rounds = nil
	for l := b.All()[0]; l.RunOnce(); {
	}
	return b.rounds
}

func (b *bench) demand(t *testing.T, why string, want ...uint64) {
	t.Helper()
	if have := b.run(); !slices.Equal(have, want) {
		t.Errorf("%s: rounds of %v, want %v", why, have, want)
	}
}

// Groups that lead come first, and those whose last round was long come last, unless they have waited for
// long.
func TestTurnsOfGroups(t *testing.T) {
	b := newBench(2)
	slow, follows, leads := b.group(1), b.group(2), b.group(3)
	slow.takes, leads.leads = longRound, true
	all := []*owner{slow, follows, leads}
	enqueue := func() {
		for _, o := range all {
			b.Enqueue(&o.seat)
		}
	}
	enqueue()
	b.demand(t, "none is slow yet", 3, 1, 2)
	enqueue()
	b.demand(t, "one was slow", 3, 2, 1)
	enqueue()
	b.now += Wait
	b.demand(t, "the slow one has waited", 1, 3, 2)
}

// A group is on one lane at a time. What comes meanwhile is another round, and none if the group has failed.
func TestOneLaneForAGroup(t *testing.T) {
	b := newBench(2)
	o := b.group(1)
	b.Enqueue(&o.seat)
	first, second := b.All()[0], b.All()[1]
	seat, _ := first.Begin()
	b.Enqueue(&o.seat)
	if other, _ := second.Begin(); seat != &o.seat || other != nil {
		t.Fatalf("the lanes have %p and %p, want the group and nothing", seat, other)
	}
	if s := b.StateOf(&o.seat); !s.Running || !s.Waits || s.Busy != 1 {
		t.Errorf("state %+v, want one that runs", s)
	}
	if more := first.End(seat, false); !more {
		t.Error("what came during the round is forgotten")
	}
	o.failed = true
	seat, _ = first.Begin()
	b.Enqueue(&o.seat)
	if more := first.End(seat, true); more {
		t.Error("a group that has failed has another round")
	}
}

// A machine that hangs is reported once, and its lane is replaced. If all lanes are held while a group waits,
// more are started sooner.
func TestHungLanes(t *testing.T) {
	b := newBench(2)
	hangs, waits := []*owner{b.group(1), b.group(2)}, b.group(3)
	for i, o := range hangs {
		b.Enqueue(&o.seat)
		b.All()[i].Begin()
	}
	b.Tick()
	if n := len(b.All()); n != 2 || b.Awaited() {
		t.Fatalf("%d lanes, although nothing waits", n)
	}
	b.Enqueue(&waits.seat)
	b.now += Wait
	if b.Tick(); len(b.All()) != 3 || len(b.events) != 0 {
		t.Errorf("%d lanes and %v, want one more for the group that waits", len(b.All()), b.events)
	}
	b.now += Stall
	b.Tick()
	b.Tick()
	if c := b.Counts(); c.Hung != 2 || c.Lanes != 4 || c.Substitutes != 2 || len(b.events) != 2 {
		t.Errorf("%+v and events %v, want two hung lanes, each replaced and reported", c, b.events)
	}
	if group, is := b.All()[0].Doing(); group != 1 || !is {
		t.Errorf("the first lane is at %d, %t", group, is)
	}
}

// A group that leaves is released once: at once, or when its round ends.
func TestLeave(t *testing.T) {
	b := newBench(2)
	idle, busy := b.group(1), b.group(2)
	b.Enqueue(&busy.seat)
	seat, _ := b.All()[0].Begin()
	b.Enqueue(&idle.seat)
	b.Leave(&idle.seat)
	b.Leave(&busy.seat)
	if idle.released != 1 || busy.released != 0 {
		t.Errorf("released %d and %d times, want the one that no lane works on", idle.released, busy.released)
	}
	b.All()[0].End(seat, true)
	b.Enqueue(&busy.seat)
	b.demand(t, "both have left")
	if busy.released != 1 {
		t.Errorf("released %d times after its round", busy.released)
	}
}

// Each skipped command is known by its entry; the second entry for a command counts for nothing.
func TestSkips(t *testing.T) {
	var s Skips
	seven, behind, three := raftpb.Position{Index: 7}, raftpb.Position{Index: 7, Pos: 1}, raftpb.Position{Index: 3}
	if s.Any() || s.Of(seven) != 0 {
		t.Error("a command is skipped from the start")
	}
	if !s.Add(seven, 20) || !s.Add(three, 21) || s.Add(seven, 22) || !s.Add(behind, 23) {
		t.Error("7, 3 and 7.1 are new, and 7 only once")
	}
	if s.Of(seven) != 20 || s.Of(three) != 21 || s.Of(behind) != 23 || s.Of(raftpb.Position{Index: 3, Pos: 1}) != 0 || s.Known() != 23 || !s.Any() {
		t.Errorf("by %d, %d, %d; known through %d", s.Of(seven), s.Of(three), s.Of(behind), s.Known())
	}
}
