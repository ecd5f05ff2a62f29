// Package turn has the shapes that a group's turn and its duties have in common. It owns no state, and has no
// lock: a turn calls it. It knows no group: C is what a duty gets.
package turn

// Duty is what a group does besides replicating commands. Step does one bounded piece of work and waits for
// nothing.
type Duty[C any] struct {
	Name string
	Step func(C)
	// Due returns the tick at which Step must be called if nothing else happens. It may be nil: the duty has no
	// time of its own.
	Due func(C) (tick int64)
}
