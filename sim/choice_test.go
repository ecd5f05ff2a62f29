package sim_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
	"github.com/millrace/millrace/sim/coverage"
)

// TestInjectionsCanBeLeftOut: without all faults nothing is counted and no power is cut; without the last
// injection of a run everything before it is as it was.
func TestInjectionsCanBeLeftOut(t *testing.T) {
	struck, fewer := 0, 0
	for seed := uint64(1); seed <= 8; seed++ {
		run := func(c coverage.Choice) sim.Report {
			r, err := sim.Run(sim.Options{Seed: seed, Faults: 500 * time.Millisecond, Choice: c})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		all, none := run(coverage.Choice{}), run(coverage.Choice{Without: coverage.Faults()})
		cuts := none.Faults[sim.PowerCuts] + none.Faults[sim.Cuts] + none.Faults[sim.Pauses] + none.Faults[sim.FullDisks]
		if n := none.Coverage.Sum(); n != 0 || cuts > 0 {
			t.Errorf("seed %d: without all faults there are %d hits and %v", seed, n, none.Faults)
		}
		if all.Injections == 0 {
			continue
		}
		struck++
		last := run(coverage.Choice{Skip: []int{all.Injections}})
		for _, c := range coverage.Cells() {
			if all.Coverage.At(c.Fault, c.Phase) > last.Coverage.At(c.Fault, c.Phase) {
				fewer++
			}
		}
		if last.Injections < all.Injections {
			t.Errorf("seed %d: without injection %d there are %d injections", seed, all.Injections, last.Injections)
		}
	}
	if struck == 0 || fewer == 0 {
		t.Errorf("%d runs had injections, and without the last one %d cells had fewer hits", struck, fewer)
	}
}
