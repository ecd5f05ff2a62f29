package sim_test

import (
	"flag"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/sim"
)

var packings = flag.Uint64("packings", 10, "run TestBatchEntries with this many seeds")

// With several commands in an entry all that the other runs demand holds, command by command. The runs have
// plain entries, calls, a user's machine, machines on disk, poison, duplicates and snapshots.
func TestBatchEntries(t *testing.T) {
	load := sums(func(uint64) millrace.StateMachine[int64, int64] { return &sum{} })
	packed, cuts := 0, 0
	count := func(f sim.Faults) {
		packed, cuts = packed+f[sim.PackedCommands], cuts+f[sim.CutsInApply]
	}
	for seed := range min(*packings, most(t, 10)) {
		o := sim.Options{Seed: seed + *first, BatchEntries: true, Together: seed%2 == 0}
		r, err := sim.Run(o)
		count(r.Faults)
		if err != nil {
			t.Error(err)
		}
		f, err := sim.Poison(o)
		count(f)
		if err != nil {
			t.Error(err)
		}
		if _, _, err := sim.RunMachine(o, load); err != nil {
			t.Error(err)
		}
		if _, err := sim.ExactlyOnce(o, time.Second); err != nil {
			t.Error(err)
		}
		f, err = sim.Snapshots(o)
		if count(f); err != nil {
			t.Error(err)
		}
		for _, kind := range []sim.DivergenceKind{sim.Poisoned, sim.PoisonedWithSnapshots} {
			if _, err := sim.Divergence(o, kind); err != nil {
				t.Error(err)
			}
		}
	}
	if t.Logf("%d commands came behind others in their entry, %d crashes in a call of a machine on disk", packed, cuts); packed < 100 || *packings >= 10 && cuts == 0 {
		t.Error("too few commands shared an entry, or no machine on disk lost its power: the runs test little")
	}
}
