package sim

import (
	"github.com/millrace/millrace/sim/property"
)

// wellTimeouts is how many election timeouts a cluster is well before no member may name a cause. Refused
// hosts, of which the impostors are some, are named for 20 of them.
const wellTimeouts = 24

// checkVerdicts checks that Explain of each member of a cluster that has recovered names no cause, when the
// cluster has been well for wellTimeouts. A host that is lost for good is missed rightly. Warnings are about
// the past, and may stay: a process was paused.
func (w *world) checkVerdicts() {
	w.pass(wellTimeouts * w.config.ElectionTimeout)
	for _, g := range w.ghosts {
		for _, h := range w.hosts {
			if h.gone || !g.has(h.id) || h.alive == nil || h.alive.process == nil {
				continue
			}
			if r := h.alive.replicas[g.id-1]; r.group != nil && !r.closing && !r.isCondemned() {
				w.checkVerdict(r)
			}
		}
	}
}

func (w *world) checkVerdict(r *replica) {
	d := r.group.Explain()
	for _, c := range d.Causes {
		if c.Member == 0 || !w.hosts[c.Member-1].gone {
			w.breaks(property.Verdicts, "the cluster has been well for %d election timeouts, and %s names a cause: %v", wellTimeouts, r.name, d)
		}
	}
}
