package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/vfs/crashfs"
)

// Election is one scenario, run with many seeds: three hosts under load, a follower whose disk refuses
// entries, and the leader's crash. The remaining two must elect a leader, because the log keeps space for a
// vote, and the host with the full disk must not delay the other one.

// Election runs the scenario and returns how long the hosts had no leader. With full false every disk has
// space, and everything else is the same. At the end the disk gets space, the old leader comes back, and the
// cluster must converge. The error, if any, is a *Violation; no leader within ten election timeouts is one.
// The result is 0 if the scenario did not happen, because the leader lost its leadership earlier or the disk
// refused nothing.
func Election(o Options, full bool) (leaderless time.Duration, err error) {
	err = scenario(o, func(w *world, rng *rand.Rand) {
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond, 10*time.Millisecond)
		w.net.drop = pick(rng, 0, 0, 0.01)
		w.startCalmly()
		follower := w.hosts[(w.leader().id+uint64(rng.IntN(2)))%3] // ids begin at 1
		if full {
			follower.fill(func(int) int { return pick(rng, 0, 3) })
		}
		// Both kinds of run continue under load; with a full disk, until it has refused something.
		refused := func() bool { return w.faults[Refusals] > 0 }
		if !w.runUntil(w.now+500*time.Millisecond, refused) && full && !w.runUntil(w.now+3*time.Second, refused) {
			return
		}
		w.pass(between(rng, 0, 200*time.Millisecond))
		old := w.leader()
		if old == nil || old == follower {
			return
		}
		old.crash(crashfs.LoseAll)
		gone := w.now
		if !w.runUntil(gone+w.maxElection(), func() bool { return w.leader() != nil }) {
			if w.groupConfig.Volatile && follower.appliedUndurable() {
				w.endWell() // it cannot forget what it has refused (host/discard.go), so there is a leader when there is space
				return
			}
			w.violate("no leader in %v beside a full disk: %s", w.maxElection(), w.positions())
		}
		leaderless = w.now - gone
		w.endWell()
	})
	return leaderless, err
}

// appliedUndurable reports whether a group of the host has applied what is not on its disk.
func (h *machine) appliedUndurable() bool {
	for _, r := range h.alive.replicas {
		if s := r.group.Status(); s.Applied > s.Durable {
			return true
		}
	}
	return false
}
