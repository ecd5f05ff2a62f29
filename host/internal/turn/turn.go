// Package turn has the shapes that a group's turn and its duties have in common. They are a duty, the table
// of duties, and the set of duties that a turn must call (Wanted). The package knows no group: C is what a
// duty gets. A turn calls it; Wanted.Want may be called from anywhere, and takes no lock.
package turn

import (
	"math/bits"
	"sync/atomic"
)

// Never is a tick that does not come.
const Never = int64(1) << 62

// Duty is what a group does besides replicating commands. It is called when it is wanted, and at no other
// time: what Step would do then must be nothing.
type Duty[C any] struct {
	Name string
	At   Point
	// Step does one bounded piece of work and waits for nothing. It reports whether the next turn must call
	// it again, whatever happens until then.
	Step func(C) (again bool)
	// On says when Step is wanted besides: inputs name their duty by Wanted.Want.
	On Occasion
	// Due returns the tick at which a turn must come if nothing else happens. It may be nil: the duty has no
	// time of its own. One with a time is wanted on Tick, or again until then.
	Due func(C) (tick int64)
	// Moves says that the tick may change although Step is not called, and nothing else has changed.
	Moves bool
	// Fixed says that only a turn, by Step, moves that tick. A group that sleeps may not hear instead that its
	// leader lives.
	Fixed bool
}

// Point is where in a turn a duty is called.
type Point int

// The points, in the order of a turn.
const (
	BeforeTime  Point = iota // after the messages, and before a timeout may expire
	AfterTime                // before commands are proposed
	AfterReady               // what the core wanted is under way
	AfterStatus              // and the status says so
	points
)

// Occasion is what makes a duty wanted without an input.
type Occasion uint8

// The occasions.
const (
	Tick   Occasion = 1 << iota // the first turn since time has passed
	Change                      // role, term, leader or roster have changed
)

// Set is a set of duties, a bit for each by its place in the table.
type Set uint64

// All is the set of all duties.
const All = ^Set(0)

// Of returns the set of one duty.
func Of(place int) Set { return 1 << place }

// Wanted says which duties of one group a turn must call. Its zero value wants none.
type Wanted struct {
	came  atomic.Uint64 // since the turn looked
	set   Set           // owned by the turn
	rests bool          // owned by the turn: no duty has a time, apart from those whose time moves
}

// Want makes the next step of a table call duties. Callers leave the input first, want then, and wake the
// group after that.
func (w *Wanted) Want(s Set) {
	if Set(w.came.Load())&s != s {
		w.came.Or(uint64(s))
	}
}

// Has reports whether a duty is wanted. Only the turn calls it.
func (w *Wanted) Has(place int) bool { return (w.set|Set(w.came.Load()))&Of(place) != 0 }

// collect collects what has come.
func (w *Wanted) collect() Set {
	if w.came.Load() != 0 {
		w.set |= Set(w.came.Swap(0))
	}
	return w.set
}

// Table is the duties of a group, in the order in which a turn calls them.
type Table[C any] struct {
	duties  []Duty[C]
	changed func(C) bool // since the last call
	at      [points]Set
	on      [Tick | Change + 1]Set
	due     []func(C) (tick int64) // except those
	moving  []func(C) (tick int64) // that move
	fixed   []func(C) (tick int64)
}

// NewTable returns the table of at most 64 duties. changed reports whether role, term, leader or roster have
// changed since it was called last.
func NewTable[C any](changed func(C) bool, duties ...Duty[C]) *Table[C] {
	t := &Table[C]{duties: duties, changed: changed}
	for i, d := range duties {
		t.at[d.At] |= Of(i)
		switch {
		case d.Moves:
			t.moving = append(t.moving, d.Due)
		case d.Due != nil:
			t.due = append(t.due, d.Due)
		}
		if d.Fixed {
			t.fixed = append(t.fixed, d.Due)
		}
		for _, o := range []Occasion{Tick, Change} {
			if d.On&o != 0 {
				t.on[o] |= Of(i)
			}
		}
	}
	return t
}

// On returns the duties that are wanted on an occasion.
func (t *Table[C]) On(o Occasion) Set { return t.on[o] }

// Names returns the names of the duties, in order.
func (t *Table[C]) Names() (names []string) {
	for _, d := range t.duties {
		names = append(names, d.Name)
	}
	return names
}

// Watch is how tests watch a table.
type Watch struct {
	Every  bool              // all duties are called, wanted or not
	Called func(name string) // may be nil
}

// Step calls those duties of a point that are wanted, in order. If a duty becomes wanted while another is
// called, and is behind it, it is called too. Otherwise the next turn calls it.
func (t *Table[C]) Step(c C, at Point, w *Wanted, watch *Watch) {
	if t.changed(c) {
		w.set |= t.on[Change]
		w.rests = false
	}
	left := t.at[at] // of the point, behind the duty that was called last
	for {
		pending := w.collect() & left
		if watch.Every {
			pending = left
		}
		if pending == 0 {
			return
		}
		i := bits.TrailingZeros64(uint64(pending))
		left &^= Of(i+1) - 1
		w.set &^= Of(i)
		if watch.Called != nil {
			watch.Called(t.duties[i].Name)
		}
		if t.duties[i].Step(c) {
			w.set |= Of(i)
		}
		w.rests = false
		if t.changed(c) {
			w.set |= t.on[Change]
		}
	}
}

// Due returns the tick at which the first duty is due. If none has a time, they are asked again after one of
// them was called. So a turn that calls no duty does not look at the state of all of them.
func (t *Table[C]) Due(c C, w *Wanted) int64 {
	due := Never
	if !w.rests || w.came.Load() != 0 {
		for _, d := range t.due {
			due = min(due, d(c))
		}
		w.rests = due == Never
	}
	for _, d := range t.moving {
		due = min(due, d(c))
	}
	return due
}

// HasFixed reports whether a duty is due at some tick that only a turn moves.
func (t *Table[C]) HasFixed(c C, w *Wanted) bool {
	if w.rests {
		return false
	}
	for _, due := range t.fixed {
		if due(c) != Never {
			return true
		}
	}
	return false
}
