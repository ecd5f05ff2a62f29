package sim_test

import (
	"flag"
	"testing"

	"github.com/millrace/millrace/sim"
)

var shortages = flag.Uint64("shortages", 20, "run TestDescriptors with this many seeds")

// TestDescriptors: hosts whose machines run out of descriptors again and again go on when there are some.
func TestDescriptors(t *testing.T) {
	eachWith(t, min(*shortages, most(t, 12)), sim.Descriptors, sim.Shortages, sim.RefusedOpens, sim.FailedStarts, sim.Installs, sim.Compactions, sim.Closes)
}
