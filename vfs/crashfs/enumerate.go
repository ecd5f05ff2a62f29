package crashfs

import (
	"math/rand/v2"
)

// enumeration is one walk through the images of a fork. Each strategy returns false when the loop is over.
type enumeration struct {
	fork   *fork
	rng    *rand.Rand
	seen   map[string]bool
	budget int
	yield  func(Description, *FS) bool
	key    []byte
}

func (e *enumeration) run() {
	zero := make(choice, len(e.fork.things))
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

// visit yields the image of c, unless it was seen before.
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

// forgetNameless makes choices alike that differ only in files without a name.
func (e *enumeration) forgetNameless(c choice) {
	f := e.fork
	if len(f.things) == 0 || f.things[0].names == nil {
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

// prefixes visits the disks that wrote in order. If old bytes may show, each is visited with and without them.
func (e *enumeration) prefixes() bool {
	steps := e.fork.steps
	most := max(1, e.budget/2)
	c := make(choice, len(e.fork.things))
	for i, s := range steps {
		c[s.thing] = uint16(s.version)
		left, room := len(steps)-i, most-1
		if len(steps) > most && left > 1 && i*room/len(steps) == (i+1)*room/len(steps) {
			continue // thinned out; the last one stays
		}
		if !e.visit(c) || !e.littered(c) {
			return false
		}
	}
	return true
}

func (e *enumeration) littered(c choice) bool {
	d := append(choice(nil), c...)
	any := false
	for i := range e.fork.things {
		if e.fork.things[i].litter {
			d[i], any = 1, true
		}
	}
	return !any || e.visit(d)
}

// combinations returns how many choices there are, if that is a number worth knowing.
func (e *enumeration) combinations() (n int, ok bool) {
	n = 1
	for i := range e.fork.things {
		n *= e.fork.things[i].versions() + 1
		if n > 1<<24 {
			return 0, false
		}
	}
	return n, true
}

// all visits every choice, counting like a clock.
func (e *enumeration) all() {
	c := make(choice, len(e.fork.things))
	for {
		i := 0
		for ; i < len(c); i++ {
			if int(c[i]) < e.fork.things[i].versions() {
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

// singles visits the choices that lose or keep one thing only, in random order, for half of what is left of the budget.
func (e *enumeration) singles() bool {
	things := e.fork.things
	until := e.budget / 2
	for _, i := range e.rng.Perm(len(things)) {
		if e.budget <= until {
			return true
		}
		lost, kept := make(choice, len(things)), make(choice, len(things))
		for j := range things {
			if !things[j].litter {
				lost[j] = uint16(things[j].versions())
			}
		}
		kept[i], lost[i] = uint16(things[i].versions()), 0
		if !e.visit(lost) || !e.visit(kept) {
			return false
		}
	}
	return true
}

// random visits random choices until the budget is spent, or nothing new turns up: of a disk that wrote little, most or
// anything.
func (e *enumeration) random() {
	things := e.fork.things
	c := make(choice, len(things))
	for misses := 0; misses < 64; {
		bias := e.rng.IntN(4)
		for i := range things {
			n := things[i].versions()
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
