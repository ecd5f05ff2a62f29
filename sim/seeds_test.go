package sim_test

import (
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

// eachSeed calls run with each of n seeds, from first onwards, on all cores, until one call returns false.
// Calls under way are then completed.
func eachSeed(first, n uint64, run func(seed uint64) (more bool)) {
	var (
		wg   sync.WaitGroup
		done atomic.Bool
		next atomic.Uint64
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for !done.Load() {
				k := next.Add(1) - 1
				if k >= n {
					return
				}
				if !run(first + k) {
					done.Store(true)
				}
			}
		})
	}
	wg.Wait()
}

// durations returns what a scenario returns for the seeds 1 to n, shortest first, without those in which it
// did not happen (0). The first errors fail the test.
func durations(t *testing.T, n uint64, scenario func(sim.Options) (time.Duration, error)) []time.Duration {
	took := make([]time.Duration, n)
	eachSeed(1, n, func(seed uint64) (more bool) {
		d, err := scenario(sim.Options{Seed: seed})
		if err != nil {
			t.Error(err)
		}
		took[seed-1] = d
		return !t.Failed()
	})
	slices.Sort(took)
	return slices.DeleteFunc(took, func(d time.Duration) bool { return d == 0 })
}
