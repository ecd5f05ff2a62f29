package sim_test

import (
	"flag"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

// Leaders are killed while the network repeats, loses and delays the frames with commands, and users repeat
// their commands at other hosts: each command is applied once. With -seeds 100 more than a million duplicates
// come to state machines.
func TestExactlyOnce(t *testing.T) {
	n := min(*seeds/80, 4000)
	if isSet("seeds") {
		n = *seeds
	}
	if testing.Short() {
		n = 2
	}
	var suppressed, leaders, calls, acked atomic.Uint64
	eachSeed(*first, n, func(seed uint64) (more bool) {
		r, err := sim.ExactlyOnce(sim.Options{Seed: seed}, 3*time.Second)
		if err != nil {
			t.Error(err)
		}
		suppressed.Add(r.Suppressed)
		leaders.Add(uint64(r.Leaders))
		calls.Add(uint64(r.Calls))
		acked.Add(uint64(r.Acked))
		return !t.Failed()
	})
	t.Logf("%d seeds: %d terms with a leader, %d commands, %d acknowledged, %d duplicates suppressed by state machines",
		n, leaders.Load(), calls.Load(), acked.Load(), suppressed.Load())
	if !t.Failed() && (suppressed.Load() < 10*n || leaders.Load() < 2*n) {
		t.Error("too few duplicates or leaders: the scenario tests little")
	}
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}
