package sim

import (
	"time"

	"github.com/millrace/millrace/vfs/crashfs"
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

// SlowDisks runs three hosts under load whose disks are all slow: each write or sync takes between a half and
// the whole of a time. It returns how many new leaders there were in a time, for what part of it a host led,
// and how many commands were acknowledged. Then the leader crashes, and the others must elect one. The error,
// if any, is a *Violation.
func SlowDisks(o Options, slowness, during time.Duration) (leaders int, led float64, acked int, err error) {
	o.small = true
	w := newWorld(o)
	defer func() {
		if broken := violation(recover()); broken != nil {
			err = broken
		}
	}()
	w.useSafeMode()
	w.net.slowest = 3 * time.Millisecond
	w.startCalmly()
	for _, h := range w.hosts {
		h.slowness = slowness
	}
	w.runUntil(w.now+5*w.config.ElectionTimeout, func() bool { return false })
	before, answered := w.leaders(), w.acked()
	const step = time.Millisecond
	with := 0
	for n := 0; n < int(during/step); n++ {
		w.runUntil(w.now+step, func() bool { return false })
		if w.leader() != nil {
			with++
		}
	}
	leaders, acked = w.leaders()-before, w.acked()-answered
	if old := w.leader(); old != nil {
		old.crash(crashfs.LoseNothing)
		// A vote waits for two disks, one after the other, so candidates often collide.
		if most := 3 * w.maxElection(); !w.runUntil(w.now+most, func() bool { return w.leader() != nil }) {
			w.violate("no leader in %v with slow disks: %s", most, w.positions())
		}
	}
	for _, h := range w.hosts {
		h.slowness = 0
	}
	w.endWell()
	return leaders, float64(with) / float64(during/step), acked, nil
}
