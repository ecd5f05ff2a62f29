package sched

import (
	"testing"

	"github.com/millrace/millrace/host/internal/turn"
	"pgregory.net/rapid"
)

// naiveWheel is the twin of wheel: it looks at every group at every tick.
type naiveWheel struct {
	now int64
	due map[*Seat]int64
}

func (w *naiveWheel) set(g *Seat, due int64) {
	delete(w.due, g)
	if due < turn.Never {
		w.due[g] = max(due, w.now+1)
	}
}

func (w *naiveWheel) advance(now int64) (ran map[*Seat]bool) {
	ran = map[*Seat]bool{}
	w.now = max(w.now, now)
	for g, due := range w.due {
		if due <= w.now {
			ran[g] = true
			delete(w.due, g)
		}
	}
	return ran
}

func wheelSeat() *Seat {
	g := &Seat{}
	g.timer.Owner = g
	return g
}

// Groups are set and taken out, some ticks pass, many ticks pass at once after a pause, and a late clock
// repeats a tick or goes back. The wheel runs the groups that its twin runs, each once.
func TestWheelBesideItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w wheel
		twin := naiveWheel{due: map[*Seat]int64{}}
		groups := make([]*Seat, rapid.IntRange(1, 8).Draw(t, "groups"))
		for i := range groups {
			groups[i] = wheelSeat()
		}
		// Around a turn of the wheel, and several turns away.
		distance := rapid.OneOf(rapid.Int64Range(-2, 5), rapid.Int64Range(wheelSlots-2, wheelSlots+2), rapid.Int64Range(0, 5*wheelSlots), rapid.Just(turn.Never))
		pause := rapid.OneOf(rapid.Int64Range(-3, 3), rapid.Int64Range(wheelSlots-2, wheelSlots+2), rapid.Int64Range(0, 10*wheelSlots))
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				g, due := rapid.SampledFrom(groups).Draw(t, "group"), distance.Draw(t, "in")
				if due < turn.Never {
					due += w.now
				}
				w.set(g, due)
				twin.set(g, due)
			},
			"leave": func(t *rapid.T) {
				g := rapid.SampledFrom(groups).Draw(t, "group")
				g.timer.Leave()
				delete(twin.due, g)
			},
			"advance": func(t *rapid.T) {
				now := w.now + pause.Draw(t, "ticks")
				ran := map[*Seat]bool{}
				w.advance(now, func(g *Seat) {
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
