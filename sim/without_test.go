package sim_test

import (
	"flag"
	"testing"

	"github.com/millrace/millrace/sim"
)

var withouts = flag.Uint64("withouts", 30, "run TestWithout with this many seeds")

// TestWithout: a group that is founded without some of its members elects one leader in a term, loses
// nothing, and does not count those left out, whenever they come.
func TestWithout(t *testing.T) {
	var sum sim.WithoutReport
	counts := map[string]int{}
	for seed := uint64(1); seed <= *withouts; seed++ {
		r, err := sim.Without(sim.Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		for name, is := range map[string]bool{
			"of five": r.Hosts == 5, "late": r.Late, "early": r.Early, "wiped": r.Wiped, "lagged": r.Lagged,
			"founded without": r.FoundedWithout, "founded with all": r.WithAll, "told": r.Told > 0,
		} {
			if is {
				counts[name]++
			}
		}
		sum.Accepted += r.Accepted
		sum.Refused += r.Refused
		sum.TooFew += r.TooFew
		sum.Told += r.Told
		sum.Acked += r.Acked
	}
	t.Logf("%d seeds: %v; calls accepted %d, refused %d, with too few kept %d; %d hosts told that they are left out; %d commands acknowledged",
		*withouts, counts, sum.Accepted, sum.Refused, sum.TooFew, sum.Told, sum.Acked)
	for name, n := range counts {
		if *withouts >= 100 && n < 5 {
			t.Errorf("%s: only %d runs", name, n)
		}
	}
}
