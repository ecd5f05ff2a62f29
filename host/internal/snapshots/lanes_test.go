package snapshots

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/event"
)

// script is a host and its groups, as the lanes see them. Its time stands still unless a test moves it.
type script struct {
	lanes  Lanes
	now    time.Duration
	ticks  int64
	tasks  []*scriptTask
	events []event.Event
}

type scriptTask struct {
	worker env.Worker
	woken  bool
}

func (t *scriptTask) Wake() { t.woken = true }
func (t *scriptTask) Stop() {}

func newScript() *script {
	s := &script{}
	s.lanes.Open(Wiring{
		Now: func() time.Duration { return s.now }, Ticks: func() int64 { return s.ticks },
		Event: func(e event.Event) { s.events = append(s.events, e) },
		Start: func(_ string, w env.Worker) env.Task {
			s.tasks = append(s.tasks, &scriptTask{worker: w})
			return s.tasks[len(s.tasks)-1]
		},
	})
	return s
}

// run runs the lanes that are woken until none is.
func (s *script) run() {
	for again := true; again; {
		again = false
		for _, t := range s.tasks {
			if t.woken {
				again = true
				t.woken = t.worker.RunOnce()
			}
		}
	}
}

// scriptGroup is a group at the lanes.
type scriptGroup struct {
	id      uint64
	seat    Seat
	leaving bool
	calls   []string
}

func (g *scriptGroup) ID() uint64      { return g.id }
func (g *scriptGroup) IsLeaving() bool { return g.leaving }
func (g *scriptGroup) Released()       { g.calls = append(g.calls, "released") }
func (g *scriptGroup) Wake()           { g.calls = append(g.calls, "woken") }
func (g *scriptGroup) Granted()        { g.calls = append(g.calls, "granted") }
func (g *scriptGroup) Inspect()        { g.calls = append(g.calls, "looks") }

// called returns what was called since the last time.
func (g *scriptGroup) called() []string {
	calls := g.calls
	g.calls = nil
	return calls
}

func newGroup(id uint64) *scriptGroup {
	g := &scriptGroup{id: id}
	g.seat.Init(g)
	return g
}

// want fails a test unless a group was called like this.
func (g *scriptGroup) want(t *testing.T, want ...string) {
	t.Helper()
	if have := g.called(); !slices.Equal(have, want) {
		t.Errorf("group %d was called %v, want %v", g.id, have, want)
	}
}

// No more takes are granted at a time than there is room for, and the group that waits longest is next.
func TestGrants(t *testing.T) {
	s := newScript()
	first, second, third := newGroup(1), newGroup(2), newGroup(3)
	for _, g := range []*scriptGroup{first, second, third} {
		s.lanes.Admit(&g.seat)
	}
	first.want(t, "granted")
	second.want(t, "granted")
	s.lanes.Admit(&third.seat) // it waits already
	third.want(t)
	for i, want := range []bool{true, true, false} {
		if s.lanes.Begin() != want {
			t.Fatalf("take %d of two", i+1)
		}
	}
	s.lanes.End(true)
	third.want(t, "granted")
}

// A grant that is not used until the next beat goes to another group.
func TestGrantsThatAreNotUsed(t *testing.T) {
	s := newScript()
	groups := []*scriptGroup{newGroup(1), newGroup(2), newGroup(3)}
	for _, g := range groups {
		s.lanes.Admit(&g.seat)
	}
	groups[2].want(t)
	s.lanes.Tick()
	groups[2].want(t, "granted")
	s.lanes.End(false)
	if !s.lanes.Begin() {
		t.Error("there is no room, although a grant is not needed any more")
	}
}

// Work runs on one lane at a time, and once more if it was enqueued meanwhile.
func TestWorkRunsOnce(t *testing.T) {
	s, g, runs := newScript(), newGroup(1), 0
	w := &Work{Seat: &g.seat, Doing: "which counts"}
	w.Piece = func() bool {
		if runs++; runs == 1 {
			s.lanes.Enqueue(w)
			s.lanes.Enqueue(w)
		}
		return false
	}
	s.lanes.Enqueue(w)
	s.lanes.Enqueue(w)
	s.run()
	if runs != 2 {
		t.Errorf("it ran %d times, want 2", runs)
	}
	runs, w.Piece = 0, func() bool { runs++; return runs < 3 }
	s.lanes.Enqueue(w)
	if s.run(); runs != 3 {
		t.Errorf("work that has more ran %d times, want 3", runs)
	}
}

// A group that leaves is released when no lane works for it, and nothing of it runs any more.
func TestALeavingGroupIsReleased(t *testing.T) {
	s, g := newScript(), newGroup(1)
	w := &Work{Seat: &g.seat, Piece: func() bool {
		g.leaving = true
		s.lanes.Leave(&g.seat)
		g.want(t) // not yet
		return true
	}}
	s.lanes.Enqueue(w)
	s.run()
	g.want(t, "released")

	idle := newGroup(2)
	other := &Work{Seat: &idle.seat, Piece: func() bool { t.Error("work of a closed group runs"); return false }}
	s.lanes.InspectLater(&idle.seat, 1)
	s.lanes.Await(&idle.seat, true)
	idle.want(t, "woken")
	s.lanes.Enqueue(other)
	idle.leaving = true
	s.lanes.Leave(&idle.seat)
	idle.want(t, "released")
	s.lanes.Enqueue(other)
	s.lanes.Admit(&idle.seat)
	s.lanes.InspectLater(&idle.seat, 1)
	s.run()
	s.ticks = 10
	s.lanes.Tick()
	idle.want(t)
}

// Work that hangs is reported once. Another lane takes its place, and a take that hangs leaves room for one.
func TestHangingWork(t *testing.T) {
	s, g, waits := newScript(), newGroup(1), newGroup(2)
	ran := false
	s.lanes.Begin()
	s.lanes.Begin()
	s.lanes.Admit(&waits.seat)
	var w *Work
	w = &Work{Seat: &g.seat, Doing: "which takes a snapshot", Takes: true, Piece: func() bool {
		if _, _, hangs := s.lanes.HangsFor(&g.seat); hangs {
			t.Error("it hangs at once")
		}
		s.now += Stall
		s.lanes.Enqueue(&Work{Seat: &waits.seat, Piece: func() bool { ran = true; return false }})
		s.lanes.Tick()
		s.lanes.Tick()
		if doing, since, hangs := s.lanes.HangsFor(&g.seat); !hangs || doing != w.Doing || since != Stall {
			t.Errorf("hangs %t for %v, %q", hangs, since, doing)
		}
		if have := s.lanes.All()[len(s.lanes.All())-1].Doing(); have != "a snapshot lane" {
			t.Errorf("the new lane: %q", have)
		}
		waits.want(t, "granted")
		return false
	}}
	s.lanes.Enqueue(w)
	s.run()
	if want := (event.SnapshotStalled{Group: 1, For: Stall, Doing: w.Doing}); len(s.events) != 1 || s.events[0] != event.Event(want) {
		t.Errorf("events: %+v, want %+v", s.events, want)
	}
	if n := len(s.lanes.All()); n != LaneCount+1 || !ran {
		t.Errorf("%d lanes, want %d; other work ran: %t", n, LaneCount+1, ran)
	}
	if s.lanes.Begin() {
		t.Error("a take that hangs no more leaves room for a third")
	}
}

// A group is looked at when its tick has come, and once; one that waits for its log has a turn at each beat.
func TestInspectLater(t *testing.T) {
	s, soon, later, slow := newScript(), newGroup(1), newGroup(2), newGroup(3)
	s.lanes.InspectLater(&later.seat, 5)
	s.lanes.InspectLater(&soon.seat, 0)
	s.lanes.Await(&slow.seat, true)
	slow.want(t, "woken")
	s.lanes.Tick()
	soon.want(t)
	slow.want(t, "woken")
	s.lanes.Await(&slow.seat, false)
	for s.ticks = 1; s.ticks < 5; s.ticks++ {
		s.lanes.Tick()
	}
	soon.want(t, "looks")
	later.want(t)
	s.lanes.Tick()
	later.want(t, "looks")
	slow.want(t)
}
