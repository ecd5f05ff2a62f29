package sim_test

import (
	"testing"

	"github.com/millrace/millrace/sim"
)

// TestImpostorsAreRefused: wiped hosts, second hosts with one id and hosts of other clusters appear in the
// seeds, and all of them are refused.
func TestImpostorsAreRefused(t *testing.T) {
	var impostors, refusals int
	for s := uint64(1); s <= 20; s++ {
		r, err := sim.Run(sim.Options{Seed: s})
		if err != nil {
			t.Fatal(err)
		}
		impostors += r.Impostors
		refusals += r.Refusals
	}
	t.Logf("%d impostors, %d refusals", impostors, refusals)
	if impostors < 10 || refusals < impostors {
		t.Errorf("%d impostors and %d refusals in 20 seeds: too few to test anything", impostors, refusals)
	}
}
