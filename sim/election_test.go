package sim_test

import (
	"flag"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

var elections = flag.Uint64("elections", 20, "run TestElectionBesideAFullDisk with this many seeds; the claim is about 1000")

// A full disk of one member of three does not delay the other two when the leader is gone: over 1,000 seeds
// the median is at most 1.2 times the median of the same seeds without a full disk. (Election itself demands
// a leader within ten election timeouts.)
func TestElectionBesideAFullDisk(t *testing.T) {
	if testing.Short() {
		*elections = min(*elections, 30)
	}
	withSpace, full := electAll(t, false), electAll(t, true)
	if t.Failed() {
		return
	}
	median := func(d []time.Duration) time.Duration { return d[len(d)/2] }
	t.Logf("%d and %d elections; time without a leader when all disks have space: median %v, at most %v; beside a full disk: median %v, at most %v; ratio of the medians %.2f",
		len(withSpace), len(full), median(withSpace), withSpace[len(withSpace)-1], median(full), full[len(full)-1], float64(median(full))/float64(median(withSpace)))
	maxTenths := 12
	if *elections < 1000 {
		maxTenths = 15 // the median of a few seeds varies by a tenth or more
	}
	if median(full) > median(withSpace)*time.Duration(maxTenths)/10 {
		t.Errorf("beside a full disk an election takes more than %d tenths of the time", maxTenths)
	}
}

// electAll returns the durations of all seeds, shortest first.
func electAll(t *testing.T, full bool) []time.Duration {
	elected := durations(t, *elections, func(o sim.Options) (time.Duration, error) { return sim.Election(o, full) })
	if uint64(len(elected)) < *elections*9/10 && !t.Failed() {
		t.Errorf("only %d of %d seeds came to an election", len(elected), *elections)
	}
	return elected
}
