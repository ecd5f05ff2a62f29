package sim

import (
	"time"

	"github.com/millrace/millrace/vfs/crashfs"
)

// WorkOnSlowDisks runs three hosts under load whose disks become slow: each write or sync takes longer by the
// time given. It returns how many new leaders there were in a time, for what part of it a host led,
// and how many commands were acknowledged. Then the leader crashes, and the others must elect one. The error,
// if any, is a *Violation.
func WorkOnSlowDisks(o Options, slow, during time.Duration) (leaders int, led float64, acked int, err error) {
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
		h.slowDisk = slow
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
		h.slowDisk = 0
	}
	w.endWell()
	return leaders, float64(with) / float64(during/step), acked, nil
}
