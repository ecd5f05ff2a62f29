package sim_test

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

var ailments = flag.Uint64("ailments", 2, "run each kind of TestExplain with this many seeds")

// For each cause that Explain names there is a cluster that has it: the hosts that can see it name it, no
// host names another one, and the verdict ends when the cause has ended. A healthy cluster gets none.
func TestExplain(t *testing.T) {
	for kind := range sim.Ailments {
		t.Run(kind.String(), func(t *testing.T) {
			var took, healed []time.Duration
			page := ""
			for seed := range *ailments {
				r, err := sim.Explain(sim.Options{Seed: seed}, kind)
				if err != nil {
					t.Fatal(err)
				}
				took, healed, page = append(took, r.Took), append(healed, r.Healed), r.Page
			}
			slices.Sort(took)
			slices.Sort(healed)
			t.Logf("named after %v (median; at most %v), no cause %v after its end (at most %v)\n%s",
				took[len(took)/2], took[len(took)-1], healed[len(healed)/2], healed[len(healed)-1], page)
		})
	}
}

// A cluster that was well for long is judged, and each of these once had a cause all the same.
func TestSeedsWithCauses(t *testing.T) {
	for what, seed := range map[string]uint64{
		"snapshots wait long after there is space":               509,
		"one leader commits nothing, as a long log comes slowly": 4091,
	} {
		if _, err := sim.Run(sim.Options{Seed: seed}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
