package sim_test

import (
	"flag"
	"testing"

	"github.com/millrace/millrace/sim"
)

var lowerings = flag.Uint64("lowerings", 6, "seeds of TestLoweredMemory")

// A member that was away gets entries that are larger than the queues and shares of today.
func TestLoweredMemory(t *testing.T) {
	for seed := uint64(1); seed <= *lowerings; seed++ {
		if _, err := sim.LoweredMemory(sim.Options{Seed: seed}); err != nil {
			t.Fatal(err)
		}
	}
}
