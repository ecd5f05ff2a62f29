package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/vfs/crashfs"
)

// Restart runs three hosts with a number of groups that have leaders and commands, crashes all hosts at once,
// starts them again, each within two heartbeats of the others, and returns how long it took from the last
// start until every group had a leader again. At the end the cluster must converge. The error, if any, is a
// *Violation.
func Restart(o Options, groups int) (took time.Duration, err error) {
	o.groups = groups
	err = scenario(o, func(w *world, rng *rand.Rand) {
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		w.startCalmly()
		if !w.runUntil(w.now+healTime, func() bool { return len(w.leadersNow()) == groups }) {
			w.violate("in %v not every group has a leader", healTime)
		}
		w.pass(between(rng, 0, time.Second))
		for _, h := range w.hosts {
			h.crash(crashfs.LoseAll)
		}
		for _, h := range w.hosts {
			w.pass(between(rng, 0, 2*w.config.HeartbeatInterval))
			h.start()
		}
		began := w.now
		if !w.runUntil(w.now+w.maxElection(), func() bool { return len(w.leadersNow()) == groups }) {
			w.violate("%v after all hosts have started again, %d of %d groups have a leader: %s", w.maxElection(), len(w.leadersNow()), groups, w.positions())
		}
		took = w.now - began
		w.endWell()
	})
	return took, err
}
