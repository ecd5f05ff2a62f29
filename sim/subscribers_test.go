package sim_test

import (
	"flag"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/sim"
)

var subscriptions = flag.Uint64("subscriptions", 40, "run TestSubscriptions with this many seeds")

// Each subscriber gets what machines publish, in order and once, while it moves from host to host and all
// faults of a run happen; or hears what it misses.
func TestSubscriptions(t *testing.T) {
	n := min(*subscriptions, most(t, 10))
	var published, taken, moved, forgotten atomic.Uint64
	eachSeed(*first, n, func(seed uint64) (more bool) {
		r, err := sim.Subscriptions(sim.Options{Seed: seed})
		if err != nil {
			t.Error(err)
		}
		published.Add(uint64(r.Published))
		taken.Add(uint64(r.Taken))
		moved.Add(uint64(r.Moved))
		forgotten.Add(uint64(r.Forgotten))
		return !t.Failed()
	})
	t.Logf("%d seeds: %d publications, %d taken, %d moves, %d times told that some are not kept", n, published.Load(), taken.Load(), moved.Load(), forgotten.Load())
	if !t.Failed() && n >= 10 && (taken.Load() < 100*n || moved.Load() < 5*n || forgotten.Load() == 0) {
		t.Error("too few publications, moves or refusals: the scenario tests little")
	}
}
