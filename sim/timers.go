package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/sim/property"
)

// Timers of a user's machine (millrace.Machine.Timers). In a program each leader has a clock that waits
// until the first timer is due. Here one appointment asks all hosts every few milliseconds. A host that
// believes that it leads gets a tick when its first timer is due. So two hosts may tick for one timer, and a
// tick may be decided long before it is applied.
//
// What is demanded: when the faults have stopped, no timer is due for long (checkTimers). Members with the
// same last command have the same first timer (checkFirstTimers).

const (
	// clockPace is the longest time between two looks of the clock.
	clockPace = 20 * time.Millisecond
	// clockStep is how old the Time of a command may be.
	clockStep = 10 * time.Millisecond
	// timersRest is how long the clock runs after the faults, and maxLate how long a timer may be due then.
	timersRest = 2 * time.Second
	maxLate    = 500 * time.Millisecond
)

// simClock is the leader's clock of a user's machine.
type simClock[C, R any] struct {
	run     *userRun[C, R]
	rng     *rand.Rand
	ticks   map[*replica]*userOutcome[C, R] // the last of each
	stopped bool
}

// startClock starts the clock of a machine that has timers.
func (u *userRun[C, R]) startClock() {
	if t, _ := u.asked.Clock(); t == nil {
		return
	}
	u.clock = &simClock[C, R]{run: u, rng: splitSeed(u.w.options.Seed, 32), ticks: map[*replica]*userOutcome[C, R]{}}
	u.clock.schedule()
}

func (c *simClock[C, R]) schedule() {
	c.run.w.plan(between(c.rng, time.Millisecond, clockPace), "clock", nil, func() {
		if c.stopped {
			return
		}
		c.run.w.eachReplica(c.look)
		c.schedule()
	})
}

// look proposes a tick if a host that leads has a timer that is due, and its last tick has an outcome.
func (c *simClock[C, R]) look(r *replica) {
	last := c.ticks[r]
	if !r.leads() || r.node == nil || last != nil && !last.done || r.group.Halted() != nil {
		return
	}
	timers, tick := c.run.machines[r.life.host.id].Clock()
	if at, ok := timers.Next(); !ok || r.group.LogTime() < at+clockStep {
		return
	}
	c.run.w.clients.submitted++
	command := c.run.number(r, tick, c.run.w.clients.submitted)
	p, err := r.node.(*millrace.Node[numbered[C], R]).Submit(command, millrace.IfLeader())
	if err != nil {
		return // it does not lead any more, or has no room: the next look is soon
	}
	o := c.run.begin(r, command)
	o.poll, o.last = p.Poll, false
	c.ticks[r] = o
	r.pending = append(r.pending, pending{command.text, o, c.run.w.now})
}

// late says which leader has a timer that is due for long.
func (c *simClock[C, R]) late() (text string) {
	c.run.w.eachReplica(func(r *replica) {
		if !r.leads() || r.group.Halted() != nil {
			return
		}
		timers, _ := c.run.machines[r.life.host.id].Clock()
		if at, ok := timers.Next(); ok && r.group.LogTime() > at+maxLate {
			text = fmt.Sprintf("%s leads, at log time %v, and its machine has a timer that was due at %v; Apply must expire timers with each command, by its Time", r.name, r.group.LogTime(), at)
		}
	})
	return text
}

// checkTimers demands that timers expire when the faults have stopped. Then the clock stops.
func (u *userRun[C, R]) checkTimers() {
	if u.clock == nil {
		return
	}
	u.w.pass(timersRest)
	if text := u.clock.late(); text != "" {
		u.w.breaks(property.Recovery, "%v after the last fault %s", timersRest, text)
	}
	u.clock.stopped = true
	u.w.checkRecovery()
}

// checkFirstTimers demands that machines that have applied the same have the same first timer.
func (u *userRun[C, R]) checkFirstTimers() {
	type first struct {
		at   time.Duration
		ok   bool
		host uint64
	}
	byLast := map[uint64]first{}
	for _, h := range u.w.hosts {
		m := u.machines[h.id]
		if h.gone || u.clock == nil {
			continue
		}
		timers, _ := m.Clock()
		f, last := first{host: h.id}, m.replica.watch.applied.Index
		f.at, f.ok = timers.Next()
		if other, seen := byLast[last]; !seen {
			byLast[last] = f
		} else if other.at != f.at || other.ok != f.ok {
			u.w.breaks(property.StateMachineSafety, "after the command of entry %d the first timer is at %v (%v) at host %d and at %v (%v) at host %d; is a timer lost in a snapshot?", last, other.at, other.ok, other.host, f.at, f.ok, f.host)
		}
	}
}
