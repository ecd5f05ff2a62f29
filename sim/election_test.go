package sim_test

import (
	"flag"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

var elections = flag.Uint64("elections", 60, "run TestElectionBesideAFullDisk with this many seeds; 1000 is the full proof")

// A full disk of one member of three costs the other two no time when the leader is gone: over 1,000 seeds the median is at
// most 1.2 times the median of the same seeds with room. (Election itself demands a leader within ten election timeouts.)
func TestElectionBesideAFullDisk(t *testing.T) {
	if testing.Short() {
		*elections = min(*elections, 30)
	}
	withRoom, full := electAll(t, false), electAll(t, true)
	if t.Failed() {
		return
	}
	median := func(d []time.Duration) time.Duration { return d[len(d)/2] }
	t.Logf("%d and %d elections; without a leader with room: median %v, at most %v; beside a full disk: median %v, at most %v; ratio of the medians %.2f",
		len(withRoom), len(full), median(withRoom), withRoom[len(withRoom)-1], median(full), full[len(full)-1], float64(median(full))/float64(median(withRoom)))
	most := 12 // tenths
	if *elections < 1000 {
		most = 15 // the median of a few seeds is off by a tenth or more
	}
	if median(full) > median(withRoom)*time.Duration(most)/10 {
		t.Errorf("beside a full disk an election takes more than %d tenths of the time", most)
	}
}

// electAll returns the durations of all seeds, shortest first.
func electAll(t *testing.T, full bool) (took []time.Duration) {
	var (
		wg   sync.WaitGroup
		next atomic.Uint64
	)
	took = make([]time.Duration, *elections)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for n := next.Add(1); n <= *elections && !t.Failed(); n = next.Add(1) {
				d, err := sim.Election(sim.Options{Seed: n}, full)
				if err != nil {
					t.Error(err)
				}
				took[n-1] = d
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	told := slices.DeleteFunc(took, func(d time.Duration) bool { return d == 0 })
	if len(told) < len(took)*9/10 {
		t.Errorf("only %d of %d seeds came to an election", len(told), len(took))
	}
	return told
}
