package sim_test

import (
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

// After a restart of all hosts the groups have leaders again before an election timeout has passed.
func TestRestartOfAllHosts(t *testing.T) {
	const timeout = 100 * time.Millisecond // of package sim
	took := durations(t, *grays, func(o sim.Options) (time.Duration, error) { return sim.Restart(o, 5) })
	if t.Failed() {
		return
	}
	median := took[len(took)/2]
	t.Logf("until five groups have leaders: median %v, at most %v; the election timeout is %v", median, took[len(took)-1], timeout)
	if median >= timeout {
		t.Errorf("the median is not below the election timeout")
	}
}
