package sim

import (
	"errors"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/sim/property"
)

// Only its disk stops a group, and a host says why. Checked after each event of a host.

// checkFailure: a group stops only because of its disk.
func (w *world) checkFailure(r *replica, err error) {
	l := r.life
	if l.host.wiped || l.host.mayStop {
		return // it is refused
	}
	if errors.Is(err, outcome.ErrMemberRemoved) && w.churn != nil {
		return // checkAtEnd looks whether it is so: the run may learn of the roster later
	}
	if !l.mayStop(err) {
		w.breaks(property.Failures, "%s has stopped by itself: %v", r.name, err)
	}
	if !l.failed {
		l.failed = true
		w.count(FailedHosts)
		if r := w.nemesis.replaces; r != nil {
			r(l)
		} else {
			w.nemesis.replace(l)
		}
	}
}
