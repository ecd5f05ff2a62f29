package sim

import (
	"fmt"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/sim/property"
)

// Without faults a cluster elects a leader, commits a last command of each group, and all members have
// applied the same, within healTime. Checked at the end of each run.

// healTime is the virtual time within which the cluster must recover once the faults stop: dozens of election
// timeouts.
const healTime = 20 * time.Second

// checkRecovery demands it.
func (w *world) checkRecovery() {
	if !w.runUntil(w.now+healTime, w.converged) {
		w.checkNothingLost()
		w.breaks(property.Recovery, "%v after the last fault the cluster has not elected a leader, committed and converged: %s", healTime, w.waiting())
	}
}

// converged reports whether the last command of each group is acknowledged, and all hosts that are not lost
// for good have applied the same entries.
func (w *world) converged() bool {
	if !w.finished() || w.churn != nil && !w.churn.isQuiet() || w.poisons.isAwaited() {
		return false
	}
	for _, g := range w.ghosts {
		if !w.groupConverged(g) {
			return false
		}
	}
	return true
}

func (w *world) groupConverged(g *ghost) bool {
	var leaders int
	applied := g.last()
	w.eachReplica(func(r *replica) {
		if r.ghost == g && r.group != nil {
			applied = max(applied, r.group.Status().Applied) // the ghost does not have a leader's first entry
		}
	})
	for _, h := range w.hosts {
		if h.gone || !g.has(h.id) {
			continue
		}
		if h.alive == nil || h.alive.process == nil {
			return false
		}
		r := h.alive.replicas[g.id-1]
		if r.group == nil || r.closing {
			return false
		}
		s := r.group.Status()
		if s.Role == event.RoleLeader {
			leaders++
		}
		if r.isCondemned() {
			if s.Role == event.RoleLeader {
				return false // it hands over
			}
			continue
		}
		if s.Applied != applied || s.LastIndex != applied {
			return false
		}
	}
	return leaders == 1
}

func (w *world) positions() string {
	var s string
	for _, h := range w.hosts {
		if h.alive == nil || h.alive.process == nil {
			s += fmt.Sprintf("host %d is down; ", h.id)
			continue
		}
		for _, r := range h.alive.replicas {
			if r.group == nil {
				s += r.name + " is not open; "
				continue
			}
			s += fmt.Sprintf("%s %+v; ", r.name, r.group.Status())
			if m := r.group.Members(); w.churn != nil && (m.Plan != "" || m.Waits != "") {
				s += fmt.Sprintf("%v, which waits for %q; ", m.Plan, m.Waits)
			}
		}
	}
	for _, g := range w.ghosts {
		s += fmt.Sprintf("applied in group %d: through %d; last command acknowledged: %v; ", g.id, g.last(), g.finished)
	}
	return s
}
