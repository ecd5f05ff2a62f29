package sim_test

import (
	"flag"
	"testing"

	"github.com/millrace/millrace/sim"
)

var foundings = flag.Uint64("foundings", 40, "run TestFounding with this many seeds")

// TestFounding: a host that loses its directory while a group is founded, or later, elects no second leader
// and loses nothing, also if the third host was never up.
func TestFounding(t *testing.T) {
	var late, forgot, before, without, with, not, acked int
	count := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	for seed := uint64(1); seed <= *foundings; seed++ {
		r, err := sim.Founding(sim.Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		count(&late, r.Late)
		count(&forgot, r.Forgot)
		count(&before, r.BeforeWipe)
		count(&without, r.WithoutIt)
		count(&with, r.WithIt)
		count(&not, r.Not)
		acked += r.Acked
	}
	t.Logf("%d seeds: a host came late in %d, peers.json was lost in %d; founded before the wipe %d; it ended founded without the wiped host in %d, with its new directory in %d, not founded in %d; %d commands acknowledged",
		*foundings, late, forgot, before, without, with, not, acked)
	for name, n := range map[string]int{"late": late, "forgot": forgot, "before": before, "without": without, "with": with, "not": not} {
		if *foundings >= 150 && n < 5 {
			t.Errorf("%s: only %d runs", name, n)
		}
	}
}
