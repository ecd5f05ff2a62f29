package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/vfs/crashfs"
)

// Restart runs three hosts with a number of groups that have leaders and commands, and crashes all hosts at
// once. It starts them again, each within two heartbeats of the others. It returns how long it took from
// the last start until every group had a leader again. In every second seed the groups have snapshots, and
// their logs begin behind the founding. At the end the cluster must converge. The error, if any, is a
// *Violation.
func Restart(o Options, groups int) (took time.Duration, err error) {
	o.groups = groups
	snapshots := o.Seed%2 == 0
	err = scenario(o, func(w *world, rng *rand.Rand) {
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		if snapshots {
			w.groupConfig.Snapshots = host.SnapshotPolicy{LogBytes: 4 << 10, KeepBytes: 1}
		}
		w.startCalmly()
		if !w.runUntil(w.now+healTime, func() bool { return len(w.leadersNow()) == groups }) {
			w.violate("in %v not every group has a leader", healTime)
		}
		for i := 0; snapshots && !w.allBeginBehindTheFounding(); i++ {
			w.loadAll(rng, 20)
			if i > 500 {
				w.violate("the logs of %d groups do not begin behind a snapshot", groups)
			}
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

// allBeginBehindTheFounding reports whether no group of any host has its first entries in the log any more.
func (w *world) allBeginBehindTheFounding() bool {
	all := true
	w.eachGroup(func(r *replica) { all = all && r.group.Status().FirstIndex > 3 })
	return all
}

// loadAll hands commands to the leaders of all groups.
func (w *world) loadAll(rng *rand.Rand, commands int) {
	for range commands {
		w.eachGroup(func(r *replica) {
			if r.group.Status().Role == event.RoleLeader && r.mayTakeMore() {
				w.clients.submitTo(r)
			}
		})
		w.pass(between(rng, 0, 4*time.Millisecond))
	}
}

// eachGroup visits the groups that are open on the hosts that run.
func (w *world) eachGroup(visit func(*replica)) {
	for _, h := range w.hosts {
		if h.alive == nil {
			continue
		}
		for _, r := range h.alive.replicas {
			if r.group != nil {
				visit(r)
			}
		}
	}
}
