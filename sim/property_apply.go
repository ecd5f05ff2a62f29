package sim

import (
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// No two hosts apply different entries at an index, and each host applies in order, once (thesis §3.6.3). No
// command is applied at two indexes, nor after its client was told that it never would be (§6.3). Checked at
// each entry that a state machine applies. The checks of machines with commands are in calls.go and
// exactlyonce.go.

// stateMachine is a replica's state machine. It has no state of its own: the entries it gets must be those of
// the ghost.
type stateMachine struct{ replica *replica }

// Apply checks state machine safety (§3.6): no two hosts apply different entries at one index.
func (m stateMachine) Apply(entries []statemachine.Entry) error {
	r, w := m.replica, m.replica.life.w
	if r.life.dead {
		return crashfs.ErrCrashed
	}
	for _, e := range entries {
		if e.Index <= r.watch.applied {
			w.breaks(property.StateMachineSafety, "%s applies entry %d after entry %d", r.name, e.Index, r.watch.applied)
		}
		if err := r.meets(e.Index, string(e.Data)); err != nil {
			return err
		}
		r.watch.applied = e.Index
		r.observeApplied(e.Index, e.Term, string(e.Data))
		r.addToState(string(e.Data))
		r.ghost.apply(w, r.name, e)
	}
	return nil
}

func (g *ghost) apply(w *world, who string, e statemachine.Entry) {
	c := content{term: e.Term, hash: hashOf(e.Data), command: string(e.Data)}
	for g.last() < e.Index {
		g.applied = append(g.applied, content{}) // Raft's own entries are not shown to state machines
	}
	switch at := &g.applied[e.Index-1]; {
	case at.command == "":
		*at = c
	case *at != c:
		w.breaks(property.StateMachineSafety, "%s applies %q (term %d) at index %d, where %q (term %d) was applied", who, c.command, c.term, e.Index, at.command, at.term)
	default:
		return
	}
	if index, twice := g.counted[c.command]; twice {
		w.breaks(property.ExactlyOnce, "%q is applied at index %d and again at %d", c.command, index, e.Index)
	}
	g.counted[c.command] = e.Index
	if g.refused[c.command] {
		w.breaks(property.ExactlyOnce, "%q is applied at index %d after its client was told that it never would be", c.command, e.Index)
	}
	if command, ok := g.acked[e.Index]; ok && command != c.command {
		w.breaks(property.CommittedStays, "%q is applied at index %d, where %q was acknowledged", c.command, e.Index, command)
	}
}
