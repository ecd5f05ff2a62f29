package sim_test

import (
	"flag"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/sim"
)

var together = flag.Uint64("together", 20, "run TestTogether with this many seeds")

// Commands that clients hand in together get one outcome each, whatever fails: those of plain entries, and
// those of a user's machine, also on hosts that forward them.
func TestTogether(t *testing.T) {
	n := min(*together, most(t, 10))
	var total sim.Report
	for seed := range n {
		r, err := sim.Run(sim.Options{Seed: seed + *first, Together: true})
		if err != nil {
			t.Error(err)
		}
		total.Submitted, total.Acked = total.Submitted+r.Submitted, total.Acked+r.Acked
	}
	t.Logf("%d seeds: %d of %d commands acknowledged", n, total.Acked, total.Submitted)
	load := sums(func(uint64) millrace.StateMachine[int64, int64] { return &sum{} })
	applied := 0
	for seed := range n / 4 {
		_, history, err := sim.RunMachine(sim.Options{Seed: seed + *first, Together: true}, load)
		if err != nil {
			t.Error(err)
		}
		for _, op := range history {
			if op.Outcome == sim.Applied {
				applied++
			}
		}
	}
	if t.Logf("%d commands of users applied", applied); total.Acked < 20*int(n) || applied < 50*int(n/4) {
		t.Error("too few commands: the scenario tests little")
	}
}
