package sim

import (
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/sim/property"
)

// Terms and indexes of a life do not go back, and applied <= committed <= last (figure 3.1). Checked after
// each event of a host.

// checkCursors: monotonic cursors never go back within one life, except that a host with a full disk, or
// without a descriptor for a new segment, may forget what it could not write, and with it that it is
// committed. The cursors are always in order.
func (w *world) checkCursors(r *replica, s diagnosis.Status) {
	was := r.watch.status
	// It may also forget that entries which are durable were replaced. Then its log grows, or ends where it
	// did.
	forgot := (r.life.sawFull || r.life.sawShort) && was.Durable < was.LastIndex && (s.LastIndex != was.LastIndex || s.Durable == s.LastIndex)
	if s.Term < was.Term || s.Committed < was.Committed && !forgot || s.Applied < was.Applied {
		w.breaks(property.Cursors, "%s went back: %+v, was %+v", r.name, s, was)
	}
	if s.Applied > s.Committed || s.Committed > s.LastIndex || s.Durable > s.LastIndex {
		w.breaks(property.Cursors, "%s has cursors out of order: %+v", r.name, s)
	}
}
