package sim

import (
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/host/statemachine"
)

// How many groups a run of HungGroups has, and how many of them hang.
const (
	manyGroups = 24
	hungGroups = 21
)

// HungGroups runs one scenario with many seeds: three hosts with 24 groups, under load. The state machines of
// 21 groups hang at their next command, on all hosts. What is committed in the other groups must be applied
// on every host within a second, at each of several moments. It returns the longest that it took. At the end
// the machines work, and the cluster must converge. The error, if any, is a *Violation.
func HungGroups(o Options) (took time.Duration, err error) {
	o.groups = manyGroups
	err = scenario(o, func(w *world, rng *rand.Rand) {
		w.groupConfig.NonBlocking = false // it would be a broken promise
		w.parallelism = pick(rng, 1, 2, 4)
		w.config.MemoryBytes = 256 << 20
		w.net.slowest = pick(rng, 300*time.Microsecond, 3*time.Millisecond)
		w.hangs = &hangs{w: w, hangsAt: func(*life, statemachine.Entry) time.Duration { return 0 }}
		w.startCalmly()
		w.clients.pace = pick(rng, time.Millisecond, 10*time.Millisecond)
		w.hangs.group = func(id uint64) bool { return id <= hungGroups }
		w.hangs.hangsAt = func(*life, statemachine.Entry) time.Duration { return forever }
		for range 6 {
			w.pass(w.config.ElectionTimeout)
			began, committed := w.now, w.committedOfWorking()
			if !w.runUntil(w.now+time.Second, func() bool { return w.workingApply(committed) }) {
				w.violate("of %d groups %d hang, on %d lanes together, and what is committed in the others is not applied for a second: %s", manyGroups, hungGroups, len(w.hangs.calls), w.positions())
			}
			took = max(took, w.now-began)
		}
		if len(w.hangs.calls) < hungGroups {
			w.violate("only %d machines hang", len(w.hangs.calls))
		}
		w.hangs.release()
		w.endWell()
	})
	return took, err
}

// committedOfWorking returns the commit index of each group that does not hang.
func (w *world) committedOfWorking() map[uint64]uint64 {
	committed := map[uint64]uint64{}
	for _, h := range w.hosts {
		for _, r := range h.alive.replicas[hungGroups:] {
			committed[r.id] = max(committed[r.id], r.group.Status().Committed)
		}
	}
	return committed
}

// workingApply reports whether every host has applied the groups through some entries.
func (w *world) workingApply(through map[uint64]uint64) bool {
	for _, h := range w.hosts {
		for _, r := range h.alive.replicas {
			if index, works := through[r.id]; works && r.group.Status().Applied < index {
				return false
			}
		}
	}
	return true
}
