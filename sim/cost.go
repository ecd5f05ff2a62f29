package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/wal"
)

// Cost is what three hosts spend on a round of the leader's append lane, with closed-loop clients and no
// faults. It has the wakes of each kind of worker, on all hosts together, and what they send.
type Cost struct {
	Rounds   int
	Commands float64 // committed
	Entries  float64 // in the leader's log
	Writes   float64 // of that log
	Turns    float64
	Appends  float64
	Applies  float64
	Readers  float64 // frames that arrive: each wakes a goroutine of a real transport
	Messages float64
	Duties   float64 // of groups: calls
	Steps    float64 // Turns, and those that their shards ran after them without another wake
	// Locks are how often the runtime and its log took a lock while a shard ran, the shard included. They are
	// 0 without the build tag countlocks.
	Locks float64
}

// LocksOfATurn is how many locks a turn takes.
func (c Cost) LocksOfATurn() float64 { return c.Locks / c.Steps }

// Wakes is the sum of the wakes.
func (c Cost) Wakes() float64 { return c.Turns + c.Appends + c.Applies + c.Readers }

func (c Cost) String() string {
	return fmt.Sprintf("%d rounds; a round has %.1f commands in %.1f entries and %.1f writes, %.1f wakes (turns %.1f, append lane %.1f, apply lanes %.1f, frames %.1f), %.1f messages, %.2f calls of duties, %.1f locks of %.1f turns",
		c.Rounds, c.Commands, c.Entries, c.Writes, c.Wakes(), c.Turns, c.Appends, c.Applies, c.Readers, c.Messages, c.Duties, c.Locks, c.Steps)
}

// costs counts while a Cost is measured.
type costs struct {
	turns, appends, applies, frames, messages, duties, steps int
	locks                                                    int64
}

// MeasureCost runs a cluster with a number of closed-loop clients of one group until the leader has completed
// a number of rounds. The cluster has one shard for each host.
func MeasureCost(seed uint64, clients, rounds int) (c Cost, err error) {
	return measureCost(seed, 1, clients, rounds, 0)
}

// MeasureGroupsCost is MeasureCost with clients that are spread over several groups. A round is a sync of
// each host.
func MeasureGroupsCost(seed uint64, groups, clients, rounds int) (c Cost, err error) {
	return measureCost(seed, groups, clients, rounds, 0)
}

// MeasureSteadyCost is MeasureCost with a heartbeat interval in which all rounds fit: no time passes for a
// group, so what it does is for commands.
func MeasureSteadyCost(seed uint64, clients, rounds int) (c Cost, err error) {
	return measureCost(seed, 1, clients, rounds, time.Minute)
}

func measureCost(seed uint64, groups, clients, rounds int, heartbeat time.Duration) (c Cost, err error) {
	err = scenario(Options{Seed: seed, Mode: &wal.ModeGroup, groups: groups}, func(w *world, _ *rand.Rand) {
		w.parallelism = 1
		w.config.LogCacheBytes, w.config.SegmentBytes = 1<<20, 1<<20
		w.groupConfig, w.config.MemoryBytes = host.GroupConfig{}, 256<<20
		w.net.slowest = 60 * time.Microsecond
		w.packing = &packing{w: w} // as by default
		if heartbeat > 0 {
			w.config.HeartbeatInterval, w.config.ElectionTimeout = heartbeat, 5*heartbeat
		}
		w.startHosts()
		var leaders []*replica
		if !w.runUntil(healTime, func() bool { leaders = w.leadersOfGroups(); return len(leaders) == groups }) {
			w.violate("%d groups of %d have leaders after %v without a fault", len(leaders), groups, healTime)
		}
		refill := func() {
			for i, leader := range leaders {
				w.clients.poll(leader)
				for len(leader.pending) < clients*(i+1)/groups-clients*i/groups && leader.leads() {
					w.clients.submitTo(leader)
				}
			}
		}
		step := func(until func() bool) {
			if !w.runUntil(w.now+time.Minute, func() bool { refill(); return until() }) {
				w.violate("the leader does not complete its rounds: %s", w.positions())
			}
		}
		w.counting = &costs{}
		syncs := func() (n uint64) { return w.logged(leaders).Syncs }
		start := syncs() + 20
		step(func() bool { return syncs() >= start }) // until it runs evenly
		w.counting = &costs{}
		before, log := w.acked(), w.logged(leaders)
		step(func() bool { return syncs() >= start+uint64(rounds) })
		k, n := w.counting, float64(syncs()-start)
		c = Cost{
			Rounds: int(n), Commands: float64(w.acked()-before) / n, Entries: float64(w.logged(leaders).AppendedEntries-log.AppendedEntries) / n,
			Writes: float64(w.logged(leaders).Appends-log.Appends) / n,
			Turns:  float64(k.turns) / n, Appends: float64(k.appends) / n, Applies: float64(k.applies) / n,
			Readers: float64(k.frames) / n, Messages: float64(k.messages) / n, Duties: float64(k.duties) / n,
			Steps: float64(k.steps) / n, Locks: float64(k.locks) / n,
		}
	})
	return c, err
}

// leadersOfGroups returns the leader of each group that has one, in the order of the groups.
func (w *world) leadersOfGroups() (all []*replica) {
	for _, g := range w.ghosts {
		w.eachReplica(func(r *replica) {
			if r.ghost == g && r.group != nil && r.leads() && (len(all) == 0 || all[len(all)-1].ghost != g) {
				all = append(all, r)
			}
		})
	}
	return all
}

// logged returns what was logged in a round: on the host of the leader, or on average of all hosts if there
// are several leaders.
func (w *world) logged(leaders []*replica) (sum wal.Stats) {
	if len(leaders) == 1 {
		return leaders[0].life.process.LogStats()
	}
	for _, h := range w.hosts {
		s := h.alive.process.LogStats()
		sum.Syncs, sum.Appends, sum.AppendedEntries = sum.Syncs+s.Syncs, sum.Appends+s.Appends, sum.AppendedEntries+s.AppendedEntries
	}
	n := uint64(len(w.hosts))
	sum.Syncs, sum.Appends, sum.AppendedEntries = sum.Syncs/n, sum.Appends/n, sum.AppendedEntries/n
	return sum
}

// countDuty counts a call of a duty.
func (w *world) countDuty(string) {
	if w.counting != nil {
		w.counting.duties++
	}
}

// countWake counts a wake of a worker, unless the worker goes on by itself.
func (w *world) countWake(t *task) {
	if w.counting == nil || t.goesOn {
		return
	}
	switch name := t.name[strings.LastIndex(t.name, "host "):]; {
	case strings.Contains(name, "shard"):
		w.counting.turns++
	case strings.HasSuffix(name, "append"):
		w.counting.appends++
	case strings.Contains(name, "apply"):
		w.counting.applies++
	}
}

// countLocks counts the locks that a shard takes in one call.
func (w *world) countLocks(t *task) (counted func()) {
	if w.counting == nil || !strings.Contains(t.name[strings.LastIndex(t.name, "host "):], "shard") {
		return func() {}
	}
	k, before := w.counting, lock.Taken()
	return func() {
		k.steps++
		k.locks += lock.Taken() - before
	}
}
