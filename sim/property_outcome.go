package sim

import (
	"errors"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/sim/property"
)

// A command that was acknowledged at a position is applied there, and nowhere else (thesis §6.3). Checked at
// the end; ghost.apply checks it at each command.

// checkAtEnd: every acknowledged command is applied where it was acknowledged, and the hosts
// close without an error.
func (w *world) checkAtEnd() {
	for _, g := range w.ghosts {
		for at, command := range g.acked {
			if g.counted[command] != at && !(isPoison(command) && g.skips[at] > 0) {
				w.breaks(property.ExactlyOnce, "%q was acknowledged at index %v and is applied at %v", command, at, g.counted[command])
			}
		}
	}
	w.eachReplica(func(r *replica) {
		if r.group != nil && errors.Is(r.group.Err(), outcome.ErrMemberRemoved) && r.ghost.has(r.life.host.id) {
			w.breaks(property.OneConfiguration, "%s has stopped as removed, and is a member: %v", r.name, r.group.Err())
		}
	})
	for _, h := range w.hosts {
		if h.alive != nil {
			h.close()
		}
	}
}
