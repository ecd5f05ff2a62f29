package sim_test

import (
	"slices"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

// Disks on which a write and its sync take up to one and a half election timeouts, on every member, keep
// their leader, and commands are committed at the pace of the disks. From two timeouts on the leader hands
// over or steps down (Config.StallTimeout), and votes that wait for the disks find no majority in time: that
// needs a longer election timeout. The table is in decision 0014.
func TestSlowDisksKeepTheirLeader(t *testing.T) {
	const timeout, during = 100 * time.Millisecond, 20 * time.Second // of package sim
	seeds := max(*grays/20, 1)
	for _, row := range []struct {
		tenths time.Duration // of an election timeout
		leads  bool          // all the time
	}{{5, true}, {10, true}, {15, true}, {20, false}, {30, false}} {
		var all sim.SlowRow
		for seed := uint64(1); seed <= seeds; seed++ {
			r, err := sim.SlowDiskRow(sim.Options{Seed: seed}, timeout*row.tenths/10, during)
			if err != nil {
				t.Fatal(err)
			}
			all.Leaders, all.HandOvers, all.Acked = all.Leaders+r.Leaders, all.HandOvers+r.HandOvers, all.Acked+r.Acked
			all.Led += r.Led / float64(seeds)
		}
		minutes := float64(seeds) * during.Minutes()
		t.Logf("a write and its sync take %.1f timeouts: %.0f commands, %.1f new leaders and %.1f hand-overs in a minute; a leader for %.2f of the time",
			float64(row.tenths)/10, float64(all.Acked)/minutes, float64(all.Leaders)/minutes, float64(all.HandOvers)/minutes, all.Led)
		if row.leads && (all.Led < 0.99 || float64(all.Acked) < 500*minutes) {
			t.Errorf("a write and its sync take %.1f timeouts: %+v", float64(row.tenths)/10, all)
		}
	}
}

// A leader whose appends are lost, and whose heartbeats are not, is replaced within a few election timeouts:
// it steps down after two to three, and then the others elect.
func TestBlackHole(t *testing.T) {
	const timeout = 100 * time.Millisecond // of package sim
	var took []time.Duration
	for seed := uint64(1); seed <= *grays; seed++ {
		d, err := sim.BlackHole(sim.Options{Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, d)
	}
	slices.Sort(took)
	median := took[len(took)/2]
	t.Logf("another host leads after a median of %v, at most %v", median, took[len(took)-1])
	if median > 5*timeout {
		t.Errorf("the median is %v of virtual time, want at most %v", median, 5*timeout)
	}
}
