package sim_test

import (
	"flag"
	"sync"
	"testing"

	"github.com/millrace/millrace/sim"
)

var catchUps = flag.Uint64("catch-ups", 3, "run TestCatchUp with this many seeds")

// TestCatchUp: a member that is beyond the log catches up by a snapshot, whatever breaks meanwhile.
func TestCatchUp(t *testing.T) {
	n := *catchUps
	if testing.Short() {
		n = min(n, 4)
	}
	var mu sync.Mutex
	var total sim.Faults
	eachSeed(1, n, func(seed uint64) (more bool) {
		faults, err := sim.CatchUp(sim.Options{Seed: seed})
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
	for _, kind := range []sim.Fault{sim.Installs, sim.Restores, sim.Compactions, sim.CrashesInside, sim.FullDisks, sim.RottenReads, sim.Lies} {
		if total[kind] == 0 && !t.Failed() {
			t.Errorf("no seed had any %v", kind)
		}
	}
}

var takes = flag.Uint64("takes", 8, "run TestSnapshots with so many seeds")

// TestSnapshots: hosts that crash while they take snapshots and compact their logs lose nothing.
func TestSnapshots(t *testing.T) {
	n := *takes
	if testing.Short() {
		n = min(n, 10)
	}
	var mu sync.Mutex
	var total sim.Faults
	eachSeed(1, n, func(seed uint64) (more bool) {
		faults, err := sim.Snapshots(sim.Options{Seed: seed})
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
	for _, kind := range []sim.Fault{sim.SnapshotsTaken, sim.Restores, sim.Compactions, sim.CrashesInside} {
		if total[kind] == 0 && !t.Failed() {
			t.Errorf("no seed had any %v", kind)
		}
	}
}
