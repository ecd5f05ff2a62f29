package coverage

// Set is a set of phases.
type Set uint16

// Has reports whether a phase is in the set.
func (s Set) Has(p Phase) bool { return s>>p&1 != 0 }

// Add puts a phase into the set if it holds.
func (s *Set) Add(p Phase, holds bool) {
	if holds {
		*s |= 1 << p
	}
}

// Without returns the set without a phase.
func (s Set) Without(p Phase) Set { return s &^ (1 << p) }
