package sim

import (
	"math/rand/v2"
	"time"
)

// Gray is what is wrong with the leader of GrayFailure: it is alive, and cannot work.
type Gray int

// The kinds.
const (
	HungDisk      Gray = iota
	FullDisk           // also for votes, in half of the seeds
	AboutToBeShut      // its host hands over, then closes
)

// GrayFailure runs one scenario with many seeds: three hosts under load, and a leader that is alive and
// cannot work, while the others can. It returns how long the old leader kept the leadership, until another
// host led, or 0 if the scenario did not happen. At the end the cause is gone and the cluster must converge.
// The error, if any, is a *Violation; no other leader within ten election timeouts is one.
func GrayFailure(o Options, kind Gray) (took time.Duration, err error) {
	err = scenario(o, func(w *world, rng *rand.Rand) {
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		w.startCalmly()
		old := w.leader()
		switch kind {
		case HungDisk:
			old.stallUntil = w.now + 40*w.config.ElectionTimeout
		case FullDisk:
			old.fill(func(int) int { return pick(rng, 0, 1) })
			if !w.runUntil(w.now+5*time.Second, func() bool { return w.faults[Refusals] > 0 }) || w.leader() != old {
				return
			}
		case AboutToBeShut:
			old.alive.process.HandOver()
		}
		began := w.now
		if !w.runUntil(began+w.maxElection(), func() bool { l := w.leader(); return l != nil && l != old }) {
			w.violate("after %v no other host leads, although the leader cannot work and the others can: %s", w.maxElection(), w.positions())
		}
		took = w.now - began
		acked := w.acked()
		if !w.runUntil(w.now+w.maxElection(), func() bool { return w.acked() > acked+20 }) {
			w.violate("%v after another host leads the clients are not served: %s", w.maxElection(), w.positions())
		}
		if kind == AboutToBeShut {
			old.close()
		}
		w.endWell()
	})
	return took, err
}
