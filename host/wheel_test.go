package host

import (
	"testing"

	"github.com/millrace/millrace/raft"
	"pgregory.net/rapid"
)

// naiveWheel is the twin of wheel: it looks at every group at every tick.
type naiveWheel struct {
	now int64
	due map[*Group]int64
}

func (w *naiveWheel) set(g *Group, due int64) {
	delete(w.due, g)
	if due < never {
		w.due[g] = max(due, w.now+1)
	}
}

func (w *naiveWheel) advance(now int64) (ran map[*Group]bool) {
	ran = map[*Group]bool{}
	w.now = max(w.now, now)
	for g, due := range w.due {
		if due <= w.now {
			ran[g] = true
			delete(w.due, g)
		}
	}
	return ran
}

func wheelGroup() *Group {
	g := &Group{}
	g.timer.owner = g
	return g
}

// Groups are set and taken out, some ticks pass, many ticks pass at once after a pause, and a late clock
// repeats a tick or goes back. The wheel runs the groups that its twin runs, each once.
func TestWheelBesideItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w wheel
		twin := naiveWheel{due: map[*Group]int64{}}
		groups := make([]*Group, rapid.IntRange(1, 8).Draw(t, "groups"))
		for i := range groups {
			groups[i] = wheelGroup()
		}
		// Around a turn of the wheel, and several turns away.
		distance := rapid.OneOf(rapid.Int64Range(-2, 5), rapid.Int64Range(wheelSlots-2, wheelSlots+2), rapid.Int64Range(0, 5*wheelSlots), rapid.Just(never))
		pause := rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64Range(wheelSlots-2, wheelSlots+2), rapid.Int64Range(0, 10*wheelSlots))
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				g, due := rapid.SampledFrom(groups).Draw(t, "group"), distance.Draw(t, "in")
				if due < never {
					due += w.now
				}
				w.set(g, due)
				twin.set(g, due)
			},
			"leave": func(t *rapid.T) {
				g := rapid.SampledFrom(groups).Draw(t, "group")
				g.timer.leave()
				delete(twin.due, g)
			},
			"advance": func(t *rapid.T) {
				now := w.now + pause.Draw(t, "ticks")
				ran := map[*Group]bool{}
				w.advance(now, func(g *Group) {
					if ran[g] {
						t.Fatalf("a group runs twice at tick %d", now)
					}
					if g.timer.in != nil {
						t.Fatalf("a group that runs at tick %d is in a slot", now)
					}
					ran[g] = true
				})
				want := twin.advance(now)
				for i, g := range groups {
					if ran[g] != want[g] {
						t.Fatalf("group %d at tick %d: runs %t, want %t", i, now, ran[g], want[g])
					}
				}
			},
			"": func(t *rapid.T) {
				n := 0
				for i := range w.slots {
					n += w.slots[i].n
				}
				if n != len(twin.due) || w.now != twin.now {
					t.Fatalf("%d groups wait at tick %d, want %d at %d", n, w.now, len(twin.due), twin.now)
				}
			},
		})
	})
}

// A core that never has anything to do is never due.
func TestDueIn(t *testing.T) {
	if due := dueIn(7, raft.NoEvent); due != never {
		t.Errorf("a core without an event is due at tick %d", due)
	}
	if due := dueIn(7, 3); due != 10 {
		t.Errorf("3 ticks after tick 7 is tick %d", due)
	}
}
