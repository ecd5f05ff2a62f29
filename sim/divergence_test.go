package sim_test

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

var divergences = flag.Uint64("divergences", 3, "seeds of each kind of TestDivergence")

// TestDivergence: state machines that differ are reported by the leader, with the member that is wrong, and
// nothing is reported of machines that do not differ, or belong to different versions. If the members want
// it, the member that is wrong stops, and no other one.
func TestDivergence(t *testing.T) {
	for _, row := range []struct {
		name string
		kind sim.DivergenceKind
	}{
		{"sound", sim.SoundMachines}, {"map order", sim.MapOrder}, {"reads the clock", sim.ReadsClock},
		{"one is wrong", sim.OneIsWrong}, {"one is stopped", sim.OneIsStopped}, {"other options", sim.OtherOptions},
		{"upgrade", sim.Upgrade}, {"upgrade with the old name", sim.UpgradeWithOldName},
		{"other form", sim.OtherForm},
		{"poison command", sim.Poisoned}, {"poison command and snapshots", sim.PoisonedWithSnapshots},
		{"poison command for one", sim.PoisonedAlone},
	} {
		t.Run(row.name, func(t *testing.T) {
			var after []time.Duration
			resumed, warned := 0, 0
			calls := 0
			for seed := uint64(1); seed <= *divergences; seed++ {
				r, err := sim.Divergence(sim.Options{Seed: seed}, row.kind)
				if err != nil {
					t.Fatal(err)
				}
				resumed += r.Resumed
				warned += r.Warned
				if calls += r.Calls; row.kind >= sim.Poisoned && r.Halts == 0 {
					t.Errorf("seed %d: no machine was halted", seed)
				}
				if len(r.Reported) > 0 {
					after = append(after, r.After)
				}
			}
			if row.kind == sim.PoisonedWithSnapshots && resumed == 0 {
				t.Errorf("no machine was made again in its life")
			}
			if row.kind == sim.OtherForm && warned == 0 {
				t.Errorf("no leader has warned of members with other forms")
			}
			slices.Sort(after)
			if len(after) > 0 {
				t.Logf("%d seeds, %d commands; reported in %d, after a median of %v, at most %v", *divergences, calls, len(after), after[len(after)/2], after[len(after)-1])
			} else {
				t.Logf("%d seeds, %d commands; reported in none", *divergences, calls)
			}
		})
	}
}
