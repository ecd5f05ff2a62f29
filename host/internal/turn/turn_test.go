package turn_test

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/host/internal/turn"
)

// script is what duties get here: it has no group.
type script struct {
	called  []string
	changed bool
	again   map[string]bool
	calls   map[string]func()
}

func (s *script) changes() bool {
	was := s.changed
	s.changed = false
	return was
}

func (s *script) duty(name string, at turn.Point, on turn.Occasion) turn.Duty[*script] {
	return turn.Duty[*script]{Name: name, At: at, On: on, Step: func(s *script) bool {
		s.called = append(s.called, name)
		if f := s.calls[name]; f != nil {
			f()
		}
		return s.again[name]
	}}
}

func newScript() (*script, *turn.Table[*script], *turn.Wanted) {
	s := &script{again: map[string]bool{}, calls: map[string]func(){}}
	return s, turn.NewTable((*script).changes,
		s.duty("first", turn.BeforeTime, turn.Change),
		s.duty("second", turn.AfterTime, 0),
		s.duty("third", turn.AfterTime, turn.Tick),
		s.duty("fourth", turn.AfterTime, turn.Change)), &turn.Wanted{}
}

// run is one turn. It returns the duties that it has called.
func (s *script) run(t *turn.Table[*script], w *turn.Wanted, watch turn.Watch) []string {
	s.called = nil
	t.Step(s, turn.BeforeTime, w, &watch)
	t.Step(s, turn.AfterTime, w, &watch)
	return s.called
}

func (s *script) demand(t *testing.T, why string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: called %v, want %v", why, got, want)
	}
}

// A duty is called when an input has come, on its occasions, again if it says so, and at no other time.
func TestADutyIsCalledWhenItIsWanted(t *testing.T) {
	s, table, w := newScript()
	s.demand(t, "nothing has happened", s.run(table, w, turn.Watch{}))
	w.Want(turn.Of(1))
	s.again["second"] = true
	s.demand(t, "an input", s.run(table, w, turn.Watch{}), "second")
	s.again["second"] = false
	s.demand(t, "again", s.run(table, w, turn.Watch{}), "second")
	s.demand(t, "done", s.run(table, w, turn.Watch{}))
	w.Want(table.On(turn.Tick))
	s.demand(t, "a tick", s.run(table, w, turn.Watch{}), "third")
	s.changed = true
	s.demand(t, "a change", s.run(table, w, turn.Watch{}), "first", "fourth")
	s.demand(t, "every duty", s.run(table, w, turn.Watch{Every: true}), "first", "second", "third", "fourth")
}

// What a duty does makes others wanted: those behind it in this turn, those before it in the next.
func TestWhatADutyDoesMakesOthersWanted(t *testing.T) {
	s, table, w := newScript()
	s.calls["third"] = func() { s.changed = true; w.Want(turn.Of(1)) }
	w.Want(turn.Of(2))
	s.demand(t, "this turn", s.run(table, w, turn.Watch{}), "third", "fourth")
	s.calls["third"] = nil
	s.demand(t, "the next turn", s.run(table, w, turn.Watch{}), "first", "second")
	s.demand(t, "the one after it", s.run(table, w, turn.Watch{}))
}

// A watch learns of each call.
func TestWatch(t *testing.T) {
	s, table, w := newScript()
	var names []string
	w.Want(turn.All)
	called := s.run(table, w, turn.Watch{Called: func(name string) { names = append(names, name) }})
	if !slices.Equal(names, called) || !slices.Equal(names, table.Names()) {
		t.Errorf("called %v, and the watch learned of %v", called, names)
	}
}

// The table is due when its first duty is.
func TestDue(t *testing.T) {
	due := func(tick int64) func(int) int64 { return func(int) int64 { return tick } }
	table := turn.NewTable(func(int) bool { return false }, turn.Duty[int]{Due: due(9)}, turn.Duty[int]{}, turn.Duty[int]{Due: due(7)})
	if due := table.Due(0, &turn.Wanted{}); due != 7 {
		t.Errorf("due at %d, want 7", due)
	}
	if due := turn.NewTable(func(int) bool { return false }, turn.Duty[int]{}).Due(0, &turn.Wanted{}); due != turn.Never {
		t.Errorf("due at %d, want never", due)
	}
}

// Only a duty whose time is fixed, and that has one, keeps a group from moving its deadline without a turn.
func TestHasFixed(t *testing.T) {
	at := turn.Never
	due := func(int) int64 { return at }
	never := func(int) bool { return false }
	table := turn.NewTable(never, turn.Duty[int]{Due: func(int) int64 { return 3 }}, turn.Duty[int]{Due: due, Fixed: true})
	if table.HasFixed(0, &turn.Wanted{}) {
		t.Error("fixed, and never due")
	}
	if at = 5; !table.HasFixed(0, &turn.Wanted{}) {
		t.Error("not fixed, and due at 5")
	}
}

// A turn that calls no duty asks none for its time, except those whose time moves by itself. One that has a
// time is asked in each turn, as its time may be counted from now.
func TestDutiesThatHaveNoTimeAreNotAsked(t *testing.T) {
	asked, moved, at := 0, 0, turn.Never
	changed, again := false, false
	table := turn.NewTable(func(int) bool { was := changed; changed = false; return was },
		turn.Duty[int]{Step: func(int) bool { return again }, Due: func(int) int64 { asked++; return at }, Fixed: true},
		turn.Duty[int]{Step: func(int) bool { return false }, Due: func(int) int64 { moved++; return 9 }, Moves: true})
	w := &turn.Wanted{}
	run := func(why string, want int) {
		t.Helper()
		table.Step(0, turn.BeforeTime, w, &turn.Watch{})
		asked, moved = 0, 0
		if due := table.Due(0, w); due != min(at, 9) || asked != want || moved != 1 {
			t.Errorf("%s: due at %d; asked %d times, and the one that moves %d times; want %d and 1", why, due, asked, moved, want)
		}
		if asked == 0 && table.HasFixed(0, w) != (at != turn.Never) {
			t.Errorf("%s: it has a fixed time: %t", why, at == turn.Never)
		}
	}
	run("the first turn", 1)
	run("nothing was called", 0)
	changed = true
	run("a change", 1)
	run("nothing was called", 0)
	w.Want(turn.Of(0))
	run("it was called", 1)
	run("nothing was called", 0)
	table.Step(0, turn.BeforeTime, w, &turn.Watch{})
	w.Want(turn.Of(1)) // behind its point, in the same turn
	if asked = 0; table.Due(0, w) != 9 || asked != 1 {
		t.Errorf("asked %d times while an input waits, want 1", asked)
	}
	at = 5
	run("it has a time", 1)
	run("it still has one", 1)
	if !table.HasFixed(0, w) {
		t.Error("a fixed time is not seen")
	}
}
