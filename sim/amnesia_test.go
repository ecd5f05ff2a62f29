package sim_test

import (
	"flag"
	"testing"

	"github.com/millrace/millrace/sim"
)

var (
	repairs   = flag.Uint64("repairs", 12, "run TestRepairs with this many seeds")
	blackouts = flag.Uint64("blackouts", 12, "run TestBlackouts with this many seeds")
)

// TestRepairs: a flipped bit does not cost a member, and nothing that was acknowledged.
func TestRepairs(t *testing.T) {
	eachWith(t, min(*repairs, most(t, 8)), sim.Repairs, sim.Repaired, sim.LostAuthority, sim.Regained, sim.LeadersTold, sim.Cuts)
}

// TestBlackouts: a majority that may have forgotten something stands still.
func TestBlackouts(t *testing.T) {
	eachWith(t, min(*blackouts, most(t, 8)), sim.Blackouts, sim.PowerCuts, sim.LostAuthority)
}
