package sim

import (
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/sim/property"
)

// While a cluster has been well (wellness.go) for wellTimeouts election timeouts, Explain of no member names
// a cause, and no warning that claims something of the present. That is judged whenever it is so, inside a
// run and at its end. There a cluster has settledTimeouts to become well, and is judged anyway.
const (
	wellTimeouts    = 10
	settledTimeouts = 24
)

// checkVerdicts judges the verdicts at the end of a run.
func (w *world) checkVerdicts() {
	w.runUntil(w.now+settledTimeouts*w.config.ElectionTimeout, w.well.isLong)
	w.eachRunningMember(w.checkVerdict)
}

func (w *world) checkVerdict(r *replica) {
	d := r.group.Explain()
	for _, c := range append(d.Causes, presentWarnings(d)...) {
		if !w.isTrue(r, c) {
			w.breaks(property.Verdicts, "the cluster has been well for %d election timeouts, and %s names a cause: %v", wellTimeouts, r.name, d)
		}
	}
}

// isTrue reports whether what a cause claims is so in a cluster that is well. A host may be lost for good.
// Clients may propose more than the little memory, or the little lag, of this run is for. A leadership may
// rest where it should not be, since it has moved too often. The hosts of a scenario may have different
// timeouts. A sync of a snapshot may have failed, also because the directory was moved away.
func (w *world) isTrue(r *replica, c diagnosis.Cause) bool {
	switch c.Code {
	case diagnosis.CodeOverloaded:
		return w.config.MemoryBytes < enoughMemory || w.groupConfig.MaxLagBytes > 0 || w.config.MemoryBytes < ampleMemory && r.life.sawOverload
	case diagnosis.CodeSnapshotStuck:
		return r.life.sawError || r.life.sawMoved
	case diagnosis.CodeSettingsDiffer:
		return r.life.host.timeout != w.hosts[c.Member-1].timeout
	case diagnosis.CodeSingleEntries:
		return !w.packing.hasSaid(w.hosts[c.Member-1])
	case diagnosis.CodePlacementRests:
		return w.placing.mayRest(r, c.Member)
	}
	return c.Member != 0 && w.hosts[c.Member-1].gone
}

// presentWarnings returns the warnings that claim something of the present. A process that was paused is
// named for a while.
func presentWarnings(d diagnosis.Diagnosis) (now []diagnosis.Cause) {
	for _, c := range d.Warnings {
		if c.Code != diagnosis.CodePaused {
			now = append(now, c)
		}
	}
	return now
}
