package sim_test

import (
	"flag"
	"strings"
	"testing"

	"github.com/millrace/millrace/sim"
)

var leases = flag.Uint64("leases", 8, "run TestLeases with this many seeds")

// Leaders that are paused between any two steps of a read, cut off, or answered late serve no stale read
// while clocks keep to what the readers say of them.
func TestLeases(t *testing.T) {
	if testing.Short() {
		*leases = min(*leases, 8)
	}
	reads := make([]int, *leases)
	eachSeed(1, *leases, func(seed uint64) (more bool) {
		drift := []float64{0, 0.02, 0.2}[seed%3]
		n, err := sim.Leases(sim.Options{Seed: seed}, drift, drift)
		if err != nil {
			t.Error(err)
		}
		reads[seed-1] = n
		return !t.Failed()
	})
	all := 0
	for _, n := range reads {
		all += n
	}
	if t.Logf("%d reads under leases", all); all < 20*int(*leases) && !t.Failed() {
		t.Error("too few reads under a lease for a claim")
	}
}

// Clocks that drift more than the readers say make a read under a lease stale, and the scenario sees it.
// Otherwise it could not see a wrong lease.
func TestLeasesBeyondTheDrift(t *testing.T) {
	found := false
	for seed := uint64(1); seed <= 60 && !found; seed++ {
		_, err := sim.Leases(sim.Options{Seed: seed}, 0.85, 0)
		if found = err != nil && strings.Contains(err.Error(), "lease"); err != nil {
			t.Log(err)
		}
	}
	if !found {
		t.Error("no seed found a stale read")
	}
}
