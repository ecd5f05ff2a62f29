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
// plain entries, calls, a user's machine, poison, duplicates and snapshots.
func TestBatchEntries(t *testing.T) {
	load := sums(func(uint64) millrace.StateMachine[int64, int64] { return &sum{} })
	packed := 0
	for seed := range min(*packings, most(t, 10)) {
		o := sim.Options{Seed: seed + *first, BatchEntries: true, Together: seed%2 == 0}
		r, err := sim.Run(o)
		packed += r.Faults[sim.PackedCommands]
		if err != nil {
			t.Error(err)
		}
		f, err := sim.Poison(o)
		packed += f[sim.PackedCommands]
		if err != nil {
			t.Error(err)
		}
		if _, _, err := sim.RunMachine(o, load); err != nil {
			t.Error(err)
		}
		if _, err := sim.ExactlyOnce(o, time.Second); err != nil {
			t.Error(err)
		}
		if _, err := sim.Snapshots(o); err != nil {
			t.Error(err)
		}
		for _, kind := range []sim.DivergenceKind{sim.Poisoned, sim.PoisonedWithSnapshots} {
			if _, err := sim.Divergence(o, kind); err != nil {
				t.Error(err)
			}
		}
	}
	if t.Logf("%d commands came behind others in their entry", packed); packed < 100 {
		t.Error("too few commands shared an entry: the runs test little")
	}
}
