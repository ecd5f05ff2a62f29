package sim_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/sim"
)

// Two runs of a seed write the same lines, and a run writes lines of every kind.
func TestObservations(t *testing.T) {
	missing := []string{" sends host ", "disk of host ", " applies entry ", "Committed:", " answers ", " ends a ", " reports ", " logs "}
	for seed := uint64(1); seed <= 3; seed++ {
		var runs [2]bytes.Buffer
		for i := range runs {
			if _, err := sim.Run(sim.Options{Seed: seed, Observations: &runs[i]}); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(runs[0].Bytes(), runs[1].Bytes()) {
			t.Errorf("two runs of seed %d observe different things", seed)
		}
		missing = slices.DeleteFunc(missing, func(kind string) bool { return strings.Contains(runs[0].String(), kind) })
	}
	if len(missing) > 0 {
		t.Errorf("no line of these kinds: %q", missing)
	}
}
