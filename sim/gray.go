package sim

import "time"

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
	o.small = true
	w := newWorld(o)
	defer func() {
		if broken := violation(recover()); broken != nil {
			err = broken
		}
	}()
	w.useSafeMode()
	rng := splitSeed(o.Seed, 7)
	w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
	w.startCalmly()
	old := w.leader()
	switch kind {
	case HungDisk:
		old.stallUntil = w.now + 40*w.config.ElectionTimeout
	case FullDisk:
		old.fill(func(int) int { return pick(rng, 0, 1) })
		if !w.runUntil(w.now+5*time.Second, func() bool { return w.faults[Refusals] > 0 }) || w.leader() != old {
			return 0, nil
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
	return took, nil
}

// SlowDisks runs three hosts on which every write and every sync takes long, without another fault, and
// returns how long it took from the start until a leader had committed a command. At the end the disks are
// fast, and the cluster must converge. The error, if any, is a *Violation; nothing committed within a hundred
// election timeouts is one.
func SlowDisks(o Options, slow time.Duration) (took time.Duration, err error) {
	o.small = true
	w := newWorld(o)
	defer func() {
		if broken := violation(recover()); broken != nil {
			err = broken
		}
	}()
	w.useSafeMode()
	w.net.slowest = pick(splitSeed(o.Seed, 7), 300*time.Microsecond, 3*time.Millisecond)
	for _, h := range w.hosts {
		h.slowDisk = slow
		h.start()
	}
	w.startClients()
	w.clients.pace = 20 * time.Millisecond
	if !w.runUntil(100*w.config.ElectionTimeout, func() bool { return w.acked() > 0 }) {
		w.violate("in %v no command is committed on disks that take %v: %s", 100*w.config.ElectionTimeout, slow, w.positions())
	}
	took = w.now
	elections := len(w.ghosts[0].leaders)
	w.runUntil(w.now+20*w.config.ElectionTimeout, func() bool { return false })
	if more := len(w.ghosts[0].leaders) - elections; more > 2 {
		w.violate("%d elections in 20 election timeouts on disks that take %v, and no other fault", more, slow)
	}
	for _, h := range w.hosts {
		h.slowDisk = 0
	}
	w.endWell()
	return took, nil
}
