package core

import (
	"math/rand/v2"

	"github.com/millrace/millrace/sim/coverage"
)

// Faults at random moments hit the long phases of a cluster and miss the short ones. So most runs also draw
// strikes: a fault, and the phase in which it is to come. A strike waits until the phase holds, then draws a
// node and hits. Strikes have a random source of their own.

// strike is a fault that waits for a phase.
type strike struct {
	cell coverage.Cell
	from int // it waits until this beat before it looks
	done bool
}

const maxStrikes = 24

// drawStrikes draws the strikes of a run of so many beats.
func drawStrikes(rng *rand.Rand, duration int) []strike {
	if rng.IntN(4) == 0 {
		return nil
	}
	cells := coverage.Possible()
	strikes := make([]strike, 1+rng.IntN(maxStrikes))
	for i := range strikes {
		strikes[i] = strike{cell: cells[rng.IntN(len(cells))], from: rng.IntN(duration)}
		if strikes[i].cell.Phase == coverage.Bootstrap {
			strikes[i].from = 0
		}
	}
	return strikes
}

// hunt is called in each beat.
func (w *world) hunt() {
	var now coverage.Set
	known := false
	for i := range w.strikes {
		s := &w.strikes[i]
		if s.done || s.from > w.beat {
			continue
		}
		if !known {
			now, known = w.phases(nil), true
		}
		if !now.Has(s.cell.Phase) || w.side.IntN(3) == 0 {
			continue
		}
		n := w.victim(s.cell.Phase)
		if n == nil || !w.hit(s.cell.Fault, n) {
			continue
		}
		s.done, known = true, false
	}
}

// victim draws a node for which a phase holds.
func (w *world) victim(p coverage.Phase) *node {
	first := w.side.IntN(len(w.nodes))
	leader := w.leader()
	if leader != nil && w.side.IntN(3) == 0 {
		first = int(leader.id - 1)
	}
	for k := range w.nodes {
		n := w.nodes[(first+k)%len(w.nodes)]
		if n.rn != nil && w.phases(n).Has(p) {
			return n
		}
	}
	return nil
}
