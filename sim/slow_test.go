package sim_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

// A cluster whose writes or syncs take half an election timeout on every member elects a leader, keeps it,
// and commits: a write and a sync take a quarter each.
func TestSlowDisksEverywhere(t *testing.T) {
	const timeout = 100 * time.Millisecond // of package sim
	took := durations(t, *grays, func(o sim.Options) (time.Duration, error) { return sim.SlowDisks(o, timeout/4) })
	if !t.Failed() {
		t.Logf("until the first commit: median %v, at most %v", took[len(took)/2], took[len(took)-1])
	}
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
