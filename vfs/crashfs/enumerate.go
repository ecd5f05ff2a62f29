package crashfs

import (
	"math/rand/v2"
)

// enumeration is one walk through the images of a fork. Its strategies return false when the walk is over.
type enumeration struct {
	fork   *fork
	rng    *rand.Rand
	seen   map[string]bool
	budget int
	yield  func(Description, *FS) bool
	key    []byte
}

func (e *enumeration) run() {
	zero := make(choice, len(e.fork.changes))
	if !e.visit(zero) || !e.prefixes() {
		return
	}
	if n, ok := e.combinations(); ok && n <= e.budget+len(e.seen) {
		e.all()
		return
	}
	if e.singles() {
		e.random()
	}
}

// visit yields the image of c, unless it was yielded before.
func (e *enumeration) visit(c choice) bool {
	if e.budget <= 0 {
		return false
	}
	c = append(choice(nil), c...)
	e.forgetNameless(c)
	e.key = e.key[:0]
	for _, v := range c {
		e.key = append(e.key, byte(v), byte(v>>8))
	}
	if e.seen[string(e.key)] {
		return true
	}
	e.seen[string(e.key)] = true
	e.budget--
	return e.yield(Description{fork: e.fork, choice: c}, e.fork.build(c))
}

// forgetNameless makes choices equal that differ only in files without a name.
func (e *enumeration) forgetNameless(c choice) {
	f := e.fork
	if len(f.changes) == 0 || f.changes[0].names == nil {
		return // no name changed
	}
	named := make([]bool, len(f.files))
	for _, i := range f.namesOf(c) {
		named[i] = true
	}
	for i := range f.files {
		if !named[i] {
			clear(c[f.files[i].lo:f.files[i].hi])
		}
	}
}

// prefixes visits the disks that wrote in order. If stale bytes may show, each is visited with and without
// them.
func (e *enumeration) prefixes() bool {
	steps := e.fork.steps
	maxPrefixes := max(1, e.budget/2)
	c := make(choice, len(e.fork.changes))
	for i, s := range steps {
		c[s.change] = uint16(s.version)
		left, gaps := len(steps)-i, maxPrefixes-1
		if len(steps) > maxPrefixes && left > 1 && i*gaps/len(steps) == (i+1)*gaps/len(steps) {
			continue // skipped to stay within the budget; the last one is kept
		}
		if !e.visit(c) || !e.withStale(c) {
			return false
		}
	}
	return true
}

func (e *enumeration) withStale(c choice) bool {
	d := append(choice(nil), c...)
	any := false
	for i := range e.fork.changes {
		if e.fork.changes[i].stale {
			d[i], any = 1, true
		}
	}
	return !any || e.visit(d)
}

// combinations returns how many choices there are; ok is false if there are too many to enumerate.
func (e *enumeration) combinations() (n int, ok bool) {
	n = 1
	for i := range e.fork.changes {
		n *= e.fork.changes[i].versions() + 1
		if n > 1<<24 {
			return 0, false
		}
	}
	return n, true
}

// all visits every choice, counting like an odometer.
func (e *enumeration) all() {
	c := make(choice, len(e.fork.changes))
	for {
		i := 0
		for ; i < len(c); i++ {
			if int(c[i]) < e.fork.changes[i].versions() {
				c[i]++
				break
			}
			c[i] = 0
		}
		if i == len(c) || !e.visit(c) {
			return
		}
	}
}

// singles visits the choices that lose only one change or keep only one, in random order, until half of the
// remaining budget is spent.
func (e *enumeration) singles() bool {
	changes := e.fork.changes
	until := e.budget / 2
	for _, i := range e.rng.Perm(len(changes)) {
		if e.budget <= until {
			return true
		}
		lost, kept := make(choice, len(changes)), make(choice, len(changes))
		for j := range changes {
			if !changes[j].stale {
				lost[j] = uint16(changes[j].versions())
			}
		}
		kept[i], lost[i] = uint16(changes[i].versions()), 0
		if !e.visit(lost) || !e.visit(kept) {
			return false
		}
	}
	return true
}

// random visits random choices until the budget is spent or 64 draws in a row were known. The choices are
// biased to disks that wrote little, most or anything.
func (e *enumeration) random() {
	changes := e.fork.changes
	c := make(choice, len(changes))
	for misses := 0; misses < 64; {
		bias := e.rng.IntN(4)
		for i := range changes {
			n := changes[i].versions()
			v := e.rng.IntN(n + 1)
			switch {
			case bias == 1 && e.rng.IntN(4) > 0:
				v = 0
			case bias == 2 && e.rng.IntN(4) > 0:
				v = n
			}
			c[i] = uint16(v)
		}
		before := e.budget
		if !e.visit(c) {
			return
		}
		if e.budget == before {
			misses++
		} else {
			misses = 0
		}
	}
}
