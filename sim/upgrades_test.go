package sim_test

import (
	"flag"
	"testing"

	"github.com/millrace/millrace/sim"
)

var upgradings = flag.Uint64("upgradings", 30, "run TestUpgrades with this many seeds")

// TestUpgrades: members apply each command at the same version, whatever programs come and fail.
func TestUpgrades(t *testing.T) {
	eachWith(t, min(*upgradings, most(t, 20)), sim.RollUpgrades, sim.Upgrades, sim.UpgradesRefused, sim.WrongVersions, sim.LaterEntries, sim.GoneBack, sim.PromotionsRefused)
}
