package sim_test

import (
	"flag"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/sim"
)

var placements = flag.Uint64("placements", 3, "run each story of TestPlacement with this many seeds")

// TestPlacement: leaders come to where they should be, and then stay; a group moves four times within an hour
// at most, and never to a member that is behind.
func TestPlacement(t *testing.T) {
	for _, row := range []struct {
		name  string
		story sim.PlacementStory
	}{
		{"uneven", sim.Uneven}, {"ranked", sim.Ranked}, {"flapping", sim.Flapping}, {"at odds", sim.AtOdds}, {"one behind", sim.OneBehind},
	} {
		t.Run(row.name, func(t *testing.T) {
			var moved atomic.Int64
			eachSeed(1, *placements, func(seed uint64) (more bool) {
				n, err := sim.Placement(sim.Options{Seed: seed}, row.story)
				if err != nil {
					t.Error(err)
				}
				moved.Add(int64(n))
				return !t.Failed()
			})
			t.Logf("%d leaderships handed over for placement", moved.Load())
			if moved.Load() == 0 && !t.Failed() {
				t.Error("no leadership was handed over for placement")
			}
		})
	}
}
