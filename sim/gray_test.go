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

var grays = flag.Uint64("grays", 60, "run each kind of TestGrayFailures with this many seeds")

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
			took := grayFailures(t, row.kind)
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

// A cluster whose writes or syncs take half an election timeout on every member elects a leader, keeps it,
// and commits: a write and a sync take a quarter each.
func TestSlowDisksEverywhere(t *testing.T) {
	const timeout = 100 * time.Millisecond // of package sim
	var all []time.Duration
	for seed := uint64(1); seed <= *grays; seed++ {
		took, err := sim.SlowDisks(sim.Options{Seed: seed}, timeout/4)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, took)
	}
	slices.Sort(all)
	t.Logf("until the first commit: median %v, at most %v", all[len(all)/2], all[len(all)-1])
}

func grayFailures(t *testing.T, kind sim.Gray) (took []time.Duration) {
	var (
		wg   sync.WaitGroup
		next atomic.Uint64
	)
	took = make([]time.Duration, *grays)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for n := next.Add(1); n <= *grays && !t.Failed(); n = next.Add(1) {
				d, err := sim.GrayFailure(sim.Options{Seed: n}, kind)
				if err != nil {
					t.Error(err)
				}
				took[n-1] = d
			}
		})
	}
	wg.Wait()
	slices.Sort(took)
	return slices.DeleteFunc(took, func(d time.Duration) bool { return d == 0 })
}

// Disks that are slow on all members, whose write and sync take up to half an election timeout, leave a
// leader in place, commits go on, and a new leader is elected.
func TestWorkOnSlowDisks(t *testing.T) {
	const timeout, during = 100 * time.Millisecond, 10 * time.Second // of package sim
	for n := uint64(1); n <= *grays/12; n++ {
		leaders, led, acked, err := sim.WorkOnSlowDisks(sim.Options{Seed: n}, timeout/5, during)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("seed %d: %d new leaders, one for %.3f of the time, %d commands acknowledged", n, leaders, led, acked)
		if led < 0.99 || acked < 100 {
			t.Errorf("seed %d: %d new leaders, one for %.3f of the time, %d commands acknowledged", n, leaders, led, acked)
		}
	}
}
