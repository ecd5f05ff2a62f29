package sim_test

import (
	"flag"
	"os"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/sim"
)

var restSeeds = flag.Uint64("rest-seeds", 12, "run this many seeds of TestRests")

// While faults rest no member of a cluster that has been well for ten election timeouts names a cause.
func TestRests(t *testing.T) {
	failures := new(atomic.Int64)
	eachSeed(*first, *restSeeds, func(seed uint64) (more bool) {
		o := options(t, seed)
		if *trace {
			o.Trace = os.Stdout
		}
		if _, err := sim.Rests(o); err != nil {
			t.Error(err)
			failures.Add(1)
		}
		return failures.Load() < int64(*maxFailures)
	})
}
