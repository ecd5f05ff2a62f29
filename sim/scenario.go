package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/wal"
)

// A scenario is a story that random faults tell too rarely: three hosts, one named fault, and what must
// follow from it. It runs with many seeds, and a seed draws the rest: delays, sizes, moments. The checks of
// every run apply. This file has what the scenarios share.

// scenario runs one on hosts with the asynchronous pipeline, in a mode of durability in which no host is lost
// for good. The random source is the scenario's own. The error, if any, is a *Violation.
func scenario(o Options, run func(*world, *rand.Rand)) (err error) {
	o.small = true
	w := newWorld(o)
	w.scenario = true
	defer func() {
		if o.into != nil {
			*o.into = w.report()
		}
		err = violation(recover())
	}()
	w.useSafeMode()
	run(w, splitSeed(o.Seed, 7))
	w.endBroken()
	return nil
}

// useSafeMode changes a mode in which a host may be lost for good: a host that crashed must be able to come
// back.
func (w *world) useSafeMode() {
	if w.mode.Kind == wal.KindMemory || w.mode.Unsafe() {
		w.mode = wal.ModeGroup
		w.config.Durability = w.mode
	}
}

// startHosts starts all hosts, without faults and clients.
func (w *world) startHosts() {
	for _, h := range w.hosts {
		h.start()
	}
}

// meet introduces all hosts to each other, as the real transport does at its start. A host that has not
// recorded another one cannot do so later, when its disk is full.
func (w *world) meet() {
	for _, from := range w.hosts {
		for _, to := range w.hosts {
			if from != to && !w.net.introduce(from.alive, to.alive) {
				w.violate("%s and %s do not meet", from.alive.name, to.alive.name)
			}
		}
	}
}

// startCalmly starts hosts and clients without faults, and returns when the cluster works and all hosts have
// met.
func (w *world) startCalmly() {
	w.startHosts()
	w.startClients()
	w.clients.pace = 2 * time.Millisecond
	if !w.runUntil(healTime, func() bool { return w.leader() != nil && w.acked() > 20 }) {
		w.violate("no leader and no commands in %v without a fault", healTime)
	}
	w.meet()
}

// slowDisks adds a time to each write and each sync, on every host.
func (w *world) slowDisks(by time.Duration) {
	for _, h := range w.hosts {
		h.slowDisk = by
	}
}

// maxElection is how long two hosts of three may take to elect a leader.
func (w *world) maxElection() time.Duration { return 10 * w.config.ElectionTimeout }

// leader returns the host that leads group 1 in the highest term, or nil if none leads.
func (w *world) leader() (leads *machine) {
	var term uint64
	w.eachReplica(func(r *replica) {
		if r.id != 1 || r.group == nil {
			return
		}
		if s := r.group.Status(); s.Role == event.RoleLeader && s.Term > term {
			leads, term = r.life.host, s.Term
		}
	})
	return leads
}
