package sim_test

import (
	"bytes"
	"flag"
	"hash/fnv"
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

var maxDuties = flag.Uint64("max-duties", 100, "run TestEveryDuty with a third of -seeds, and with this many at most")

// A duty that no input, tick or change wants has nothing to do: a run in which every turn calls every duty is
// the same run.
func TestEveryDuty(t *testing.T) {
	eachSeed(*first, min(max(*seeds/3, 1), *maxDuties), func(seed uint64) (more bool) {
		var sums [2]uint64
		for i := range sums {
			history := fnv.New64a()
			if _, err := sim.Run(sim.Options{Seed: seed, EveryDuty: i == 1, Observations: history}); err != nil {
				t.Error(err)
			}
			sums[i] = history.Sum64()
		}
		if sums[0] != sums[1] {
			t.Errorf("seed %d: the run is another one if every turn calls every duty: compare the files that -seed %d -observations FILE writes, with -every-duty and without", seed, seed)
		}
		return !t.Failed()
	})
}
