package sim_test

import (
	"flag"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

var grays = flag.Uint64("grays", 30, "run each kind of TestGrayFailures, and TestSlowDisksEverywhere, with this many seeds")

// A leader that is alive and cannot work is replaced while the others can: with a hung disk within a few
// election timeouts (the host notices after two), with a full disk or a planned stop within two heartbeats.
func TestGrayFailures(t *testing.T) {
	const timeout, heartbeat = 100 * time.Millisecond, 20 * time.Millisecond // of package sim
	for _, row := range []struct {
		name   string
		kind   sim.Gray
		median time.Duration
	}{
		{"the disk hangs", sim.HungDisk, 4 * timeout},
		{"the disk is full", sim.FullDisk, 4 * heartbeat},
		{"the host will be closed", sim.AboutToBeShut, 2 * heartbeat},
	} {
		t.Run(row.name, func(t *testing.T) {
			took := durations(t, *grays, func(o sim.Options) (time.Duration, error) { return sim.GrayFailure(o, row.kind) })
			if t.Failed() {
				return
			}
			median := took[len(took)/2]
			t.Logf("%d of %d seeds; median %v, at most %v", len(took), *grays, median, took[len(took)-1])
			if uint64(len(took)) < *grays/2 {
				t.Errorf("the scenario happened in %d of %d seeds only", len(took), *grays)
			}
			if median > row.median {
				t.Errorf("the median is %v of virtual time, want at most %v", median, row.median)
			}
		})
	}
}
