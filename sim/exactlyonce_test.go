package sim_test

import (
	"flag"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

var duplicates = flag.Uint64("duplicates", 4, "run TestExactlyOnce with this many seeds")

// Leaders are killed while the network repeats, loses and delays the frames with commands, and users repeat
// their commands at other hosts: each command is applied once. With -duplicates 120 more than a million
// duplicates come to state machines.
func TestExactlyOnce(t *testing.T) {
	n := min(*duplicates, most(t, 2))
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
