package sim

import (
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/sim/property"
	"github.com/millrace/millrace/vfs/crashfs"
)

// No two hosts apply different commands at a position, and each host applies in order, once (thesis
// §3.6.3). No command is applied at two positions, nor after its client was told that it never would be
// (§6.3). Checked at each command that a state machine applies. The checks of machines with commands are in
// calls.go and exactlyonce.go.

// stateMachine is a replica's state machine. It has no state of its own: the entries it gets must be those of
// the ghost.
type stateMachine struct{ replica *replica }

// BorrowsData implements statemachine.Borrower.
func (stateMachine) BorrowsData() bool { return true }

// Apply checks state machine safety (§3.6): no two hosts apply different commands at one position.
func (m stateMachine) Apply(entries []statemachine.Entry) error {
	r, w := m.replica, m.replica.life.w
	if r.life.dead {
		return crashfs.ErrCrashed
	}
	for _, e := range entries {
		at := e.Position()
		r.inOrder(at)
		if err := r.meets(at, string(e.Data)); err != nil {
			return err
		}
		r.watch.applied = at
		r.observeApplied(at, e.Term, string(e.Data))
		r.addToState(string(e.Data))
		r.ghost.apply(w, r.name, e)
	}
	return nil
}

// inOrder: a command comes behind all that were applied.
func (r *replica) inOrder(at raftpb.Position) {
	if at.Compare(r.watch.applied) <= 0 {
		r.life.w.breaks(property.StateMachineSafety, "%s applies entry %v after entry %v", r.name, at, r.watch.applied)
	}
	r.missesNoMembers(at)
}

func (g *ghost) apply(w *world, who string, e statemachine.Entry) {
	c := content{term: e.Term, hash: hashOf(e.Data), command: string(e.Data)}
	for g.last() < e.Index {
		g.applied = append(g.applied, nil) // Raft's own entries are not shown to state machines
		g.ledBy = append(g.ledBy, g.led)
	}
	all := &g.applied[e.Index-1]
	for len(*all) <= int(e.Pos) {
		*all = append(*all, content{}) // nor is a command that came before
	}
	switch at := &(*all)[e.Pos]; {
	case at.command == "":
		*at = c
		if e.Pos > 0 {
			w.count(PackedCommands)
		}
	case *at != c:
		w.breaks(property.StateMachineSafety, "%s applies %q (term %d) at index %v, where %q (term %d) was applied", who, c.command, c.term, e.Position(), at.command, at.term)
	default:
		return
	}
	if at, twice := g.counted[c.command]; twice {
		w.breaks(property.ExactlyOnce, "%q is applied at index %v and again at %v", c.command, at, e.Position())
	}
	g.counted[c.command] = e.Position()
	if g.refused[c.command] {
		w.breaks(property.ExactlyOnce, "%q is applied at index %v after its client was told that it never would be", c.command, e.Position())
	}
	if command, ok := g.acked[e.Position()]; ok && command != c.command {
		w.breaks(property.CommittedStays, "%q is applied at index %v, where %q was acknowledged", c.command, e.Position(), command)
	}
}
