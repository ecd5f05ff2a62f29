package sim_test

import (
	"flag"
	"testing"

	"github.com/millrace/millrace/sim"
)

var churns = flag.Uint64("churns", 40, "run TestChurn with this many seeds")

// TestChurn: members are added, promoted, demoted, removed and replaced by plans that are executed and
// cancelled anywhere, under every fault, and directories are lost. No acknowledged command is.
func TestChurn(t *testing.T) {
	eachWith(t, min(*churns, most(t, 40)), sim.Churn, sim.Plans, sim.PlansDone, sim.Wipes,
		sim.Tokens, sim.Joins, sim.Reuses, sim.Rekeys, sim.Moves)
}
