package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

// A leader whose state machine hangs hands over to a member that has applied more, once and within a few
// election timeouts: it begins to ask after one, acts after two, and asks again after each. A command that
// blocks every machine leaves the leadership where it is, and so do machines that are slow on all hosts,
// except in one of ten runs of fifty timeouts.
func TestStuckMachines(t *testing.T) {
	const timeout = 100 * time.Millisecond // of package sim
	seeds := max(*grays/3, 1)
	for _, row := range []struct {
		name   string
		kind   sim.StuckMachine
		median time.Duration
		least  int // hand-overs in all seeds
		most   int
	}{
		{"at the leader", sim.StuckAtLeader, 4 * timeout, int(seeds) * 9 / 10, int(seeds)},
		{"at the same command everywhere", sim.StuckEverywhere, 0, 0, 0},
		{"slow everywhere", sim.SlowEverywhere, 0, 0, int(seeds) / 10},
	} {
		t.Run(row.name, func(t *testing.T) {
			var took []time.Duration
			all := 0
			for seed := uint64(1); seed <= seeds; seed++ {
				d, handOvers, err := sim.StuckMachines(sim.Options{Seed: seed}, row.kind)
				if err != nil {
					t.Fatal(err)
				}
				took, all = append(took, d), all+handOvers
			}
			slices.Sort(took)
			median := took[len(took)/2]
			t.Logf("%d seeds, %d hand-overs; another host leads after a median of %v, at most %v", seeds, all, median, took[len(took)-1])
			if all < row.least || all > row.most {
				t.Errorf("%d hand-overs, want %d to %d", all, row.least, row.most)
			}
			if median > row.median {
				t.Errorf("the median is %v of virtual time, want at most %v", median, row.median)
			}
		})
	}
}

// All groups of three hosts but three hang in their state machines, and the others are applied all the same:
// after a second at most, and from then on as if nothing hung.
func TestHungGroups(t *testing.T) {
	var took []time.Duration
	for seed := uint64(1); seed <= max(*grays/6, 1); seed++ {
		d, err := sim.HungGroups(sim.Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, d)
	}
	slices.Sort(took)
	t.Logf("%d seeds; the others are applied after a median of %v, at most %v", len(took), took[len(took)/2], took[len(took)-1])
}
