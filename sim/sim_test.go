package sim_test

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

var (
	seed  = flag.Uint64("seed", 0, "run only this seed")
	seeds = flag.Uint64("seeds", 500, "run this many seeds")
	first = flag.Uint64("first", 1, "the first of them")
	trace = flag.Bool("trace", false, "with -seed: print every event")
)

// TestSeeds runs whole clusters through faults. Each seed is a world of its own; a failure prints how to see it again.
func TestSeeds(t *testing.T) {
	if *seed != 0 {
		o := sim.Options{Seed: *seed}
		if *trace {
			o.Trace = os.Stdout
		}
		report, err := sim.Run(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Log(report)
		return
	}
	n := *seeds
	if testing.Short() {
		n = min(n, 50)
	}
	start := time.Now()
	total, failures := runSeeds(*first, n)
	for _, err := range failures {
		t.Error(err)
	}
	elapsed := time.Since(start)
	t.Logf("%d seeds, %d events (%.0f events/s, %.1f seeds/s), %v of virtual time, %d crashes, %d torn tails, %d cuts, %d leaders, %d of %d commands acknowledged",
		n, total.Events, float64(total.Events)/elapsed.Seconds(), float64(n)/elapsed.Seconds(), total.Virtual.Round(time.Second),
		total.Crashes, total.TornTails, total.Cuts, total.Leaders, total.Acked, total.Submitted)
	if len(failures) == 0 && (total.Acked == 0 || total.Crashes == 0 || total.Cuts == 0 || total.TornTails == 0) {
		t.Error("something was not tested: no command acknowledged, or no crash, torn tail or cut")
	}
}

// runSeeds runs seeds on all cores, adds up their reports, and stops at a few failures.
func runSeeds(first, n uint64) (total sim.Report, failures []error) {
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		next atomic.Uint64
	)
	next.Store(first)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				s := next.Add(1) - 1
				if s >= first+n {
					return
				}
				r, err := sim.Run(sim.Options{Seed: s})
				mu.Lock()
				total.Events += r.Events
				total.Virtual += r.Virtual
				total.Crashes += r.Crashes
				total.TornTails += r.TornTails
				total.Cuts += r.Cuts
				total.Leaders += r.Leaders
				total.Submitted += r.Submitted
				total.Acked += r.Acked
				if err != nil {
					failures = append(failures, err)
				}
				enough := len(failures) >= 3
				mu.Unlock()
				if enough {
					return
				}
			}
		})
	}
	wg.Wait()
	return total, failures
}

// TestSameSeedSameHistory: a seed that could not be run again would be worth nothing.
func TestSameSeedSameHistory(t *testing.T) {
	for s := uint64(1); s <= 8; s++ {
		a, errA := sim.Run(sim.Options{Seed: s})
		b, errB := sim.Run(sim.Options{Seed: s})
		if a != b || fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Fatalf("seed %d ran differently:\n%v %v\n%v %v", s, a, errA, b, errB)
		}
	}
}
