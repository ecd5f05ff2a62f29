package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/vfs/crashfs"
)

// Two scenarios have disks that are slow on every host: SlowDisks from the start, without a leader, and
// WorkOnSlowDisks under load. A leader must not be lost because its own disk and those of its followers are
// equally slow: no other host could do better.

// SlowDisks runs three hosts on which every write and every sync takes long, without another fault. It
// returns how long it took from the start until a leader had committed a command. At the end the disks are
// fast, and the cluster must converge. The error, if any, is a *Violation; nothing committed within a
// hundred election timeouts is one.
func SlowDisks(o Options, slow time.Duration) (took time.Duration, err error) {
	err = scenario(o, func(w *world, rng *rand.Rand) {
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		w.slowDisks(slow)
		w.startHosts()
		w.startClients()
		w.clients.pace = 20 * time.Millisecond
		if !w.runUntil(100*w.config.ElectionTimeout, func() bool { return w.acked() > 0 }) {
			w.violate("in %v no command is committed on disks that take %v: %s", 100*w.config.ElectionTimeout, slow, w.positions())
		}
		took = w.now
		elections := len(w.ghosts[0].leaders)
		w.pass(20 * w.config.ElectionTimeout)
		if more := len(w.ghosts[0].leaders) - elections; more > 2 {
			w.violate("%d elections in 20 election timeouts on disks that take %v, and no other fault", more, slow)
		}
		w.slowDisks(0)
		w.endWell()
	})
	return took, err
}

// WorkOnSlowDisks runs three hosts under load whose disks become slow: each write or sync takes longer by the
// time given. It returns how many new leaders there were in a time, for what part of it a host led,
// and how many commands were acknowledged. Then the leader crashes, and the others must elect one. The error,
// if any, is a *Violation.
func WorkOnSlowDisks(o Options, slow, during time.Duration) (leaders int, led float64, acked int, err error) {
	err = scenario(o, func(w *world, _ *rand.Rand) {
		w.net.slowest = 3 * time.Millisecond
		w.startCalmly()
		w.slowDisks(slow)
		w.pass(5 * w.config.ElectionTimeout)
		before, answered := w.leaders(), w.acked()
		const step = time.Millisecond
		with := 0
		for n := 0; n < int(during/step); n++ {
			w.pass(step)
			if w.leader() != nil {
				with++
			}
		}
		leaders, led, acked = w.leaders()-before, float64(with)/float64(during/step), w.acked()-answered
		if old := w.leader(); old != nil {
			old.crash(crashfs.LoseNothing)
			// A vote waits for two disks, one after the other, so candidates often collide.
			if most := 3 * w.maxElection(); !w.runUntil(w.now+most, func() bool { return w.leader() != nil }) {
				w.violate("no leader in %v with slow disks: %s", most, w.positions())
			}
		}
		w.slowDisks(0)
		w.endWell()
	})
	return leaders, led, acked, err
}
