package sim_test

import (
	"flag"
	"testing"

	"github.com/millrace/millrace/sim"
)

var transfers = flag.Uint64("transfers", 8, "run TestTransfers with this many seeds")

// A leadership that a caller wants handed over passes to the target, or the call says why it did not.
func TestTransfers(t *testing.T) {
	well, badly := 0, 0
	for seed := range *transfers {
		w, b, err := sim.Transfers(sim.Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		well, badly = well+w, badly+b
	}
	t.Logf("%d transfers, %d that ended with an error", well, badly)
	if well < 5*int(*transfers) || badly == 0 {
		t.Errorf("%d transfers and %d errors in %d seeds: too few", well, badly, *transfers)
	}
}
