package sim_test

import (
	"flag"
	"sync"
	"testing"

	"github.com/millrace/millrace/sim"
)

var (
	takes    = flag.Uint64("takes", 8, "run TestSnapshots with this many seeds")
	catchUps = flag.Uint64("catch-ups", 8, "run TestCatchUp with this many seeds")
)

// TestSnapshots: hosts that crash while they take snapshots and compact their logs lose nothing.
func TestSnapshots(t *testing.T) {
	eachWith(t, min(*takes, most(t, 10)), sim.Snapshots, sim.SnapshotsTaken, sim.Restores, sim.Compactions, sim.CrashesInside)
}

// TestCatchUp: a member that is beyond the log catches up by a snapshot, whatever breaks meanwhile.
func TestCatchUp(t *testing.T) {
	eachWith(t, min(*catchUps, most(t, 8)), sim.CatchUp, sim.Installs, sim.Restores, sim.Compactions, sim.CrashesInside,
		sim.FullDisks, sim.RottenReads, sim.Lies)
}

// most is how many seeds a short test may run.
func most(t *testing.T, short uint64) uint64 {
	if t.Helper(); testing.Short() {
		return short
	}
	return 1 << 62
}

// eachWith runs a scenario with n seeds from -first on, and demands that each of these kinds of faults and
// events came, if it begins with seed 1.
func eachWith(t *testing.T, n uint64, scenario func(sim.Options) (sim.Faults, error), kinds ...sim.Fault) {
	t.Helper()
	var mu sync.Mutex
	var total sim.Faults
	eachSeed(*first, n, func(seed uint64) (more bool) {
		faults, err := scenario(sim.Options{Seed: seed})
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			t.Error(err)
		}
		for i := range faults {
			total[i] += faults[i]
		}
		return !t.Failed()
	})
	t.Logf("%v", total)
	for _, kind := range kinds {
		if total[kind] == 0 && !t.Failed() && *first == 1 {
			t.Errorf("no seed had any %v", kind)
		}
	}
}
