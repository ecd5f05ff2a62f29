package sim_test

import (
	"flag"
	"testing"

	"github.com/millrace/millrace/sim"
)

var poisonings = flag.Uint64("poisonings", 30, "run TestPoison with this many seeds")

// TestPoison: commands that machines cannot apply halt machines and not groups, and members skip them alike,
// whatever fails meanwhile.
func TestPoison(t *testing.T) {
	eachWith(t, min(*poisonings, most(t, 20)), sim.Poison, sim.PoisonCommands, sim.Halts, sim.CommandsSkipped, sim.SkipsRefused, sim.MadeAgain)
}
