package core

import (
	"slices"

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

const maxStrikes = 32

// short are the phases that last for a few beats only.
var short = []coverage.Phase{coverage.Conflict, coverage.SnapshotBuild, coverage.SnapshotInstall, coverage.Transfer, coverage.Compaction, coverage.Shutdown}

// drawStrikes draws the strikes of a run of a number of beats.
func (w *world) drawStrikes(duration int, aim *coverage.Cell) []strike {
	cells := slices.DeleteFunc(coverage.Possible(), func(c coverage.Cell) bool { return !w.maySee(c) })
	for _, c := range cells { // the short phases are missed more often, so they are drawn more often
		if slices.Contains(short, c.Phase) {
			cells = append(cells, c, c)
		}
	}
	strikes := make([]strike, 1+w.side.IntN(maxStrikes))
	switch {
	case aim != nil:
		cells = []coverage.Cell{*aim}
	case w.side.IntN(4) == 0:
		return nil
	}
	for i := range strikes {
		strikes[i].cell = cells[w.side.IntN(len(cells))]
		if w.side.IntN(2) == 0 && strikes[i].cell.Phase != coverage.Bootstrap {
			strikes[i].from = w.side.IntN(duration)
		}
	}
	return strikes
}

// maySee reports whether a cell can come in this run.
func (w *world) maySee(c coverage.Cell) bool {
	s := &w.swarm
	if coverage.OfHosts(c.Fault) {
		return false
	}
	switch c.Phase {
	case coverage.MixedVersions:
		return w.mixed
	case coverage.LearnerCatchUp, coverage.ConfigChange:
		return s.members
	case coverage.SnapshotBuild:
		return s.compactAfter > 0 && w.build > 0
	case coverage.Compaction:
		return s.compactAfter > 0 && w.trim > 0
	case coverage.SnapshotSend, coverage.SnapshotInstall:
		return s.compactAfter > 0
	}
	switch c.Fault {
	case coverage.MemberAdd, coverage.MemberRemove:
		return s.members
	case coverage.SlowDisk, coverage.HungDisk, coverage.FullDisk:
		return s.async || w.mixed
	case coverage.ClockDrift, coverage.ClockJump:
		return !s.leases
	}
	return true
}

// hunt is called in each beat.
func (w *world) hunt() {
	var now coverage.Set
	known := false
	for _, n := range w.nodes {
		n.armed = nil // the phase must still hold
	}
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
		switch f := s.cell.Fault; {
		case n == nil:
		case f == coverage.SyncError || f == coverage.ReadError:
			n.armed = s // it hits with the next sync or read
		case w.hit(f, n):
			s.done, known = true, false
		}
	}
}

// victim draws a node for which a phase holds.
func (w *world) victim(p coverage.Phase) (other *node) {
	first := w.side.IntN(len(w.nodes))
	leader := w.leader()
	if leader != nil && w.side.IntN(3) == 0 {
		first = int(leader.id - 1)
	}
	for k := range w.nodes {
		n := w.nodes[(first+k)%len(w.nodes)]
		switch {
		case n.rn == nil:
		case n.phases().Has(p):
			return n // it is in that phase itself
		case other == nil && w.phases(n).Has(p):
			other = n
		}
	}
	return other
}
