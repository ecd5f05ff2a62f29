package sim_test

import (
	"flag"
	"sync/atomic"
	"testing"
	"time"

	"github.com/millrace/millrace/sim"
)

var (
	idles   = flag.Uint64("idles", 8, "run each kind of TestIdleGroups with this many seeds")
	idleFor = flag.Duration("idle-for", 20*time.Second, "for how long the groups of TestIdleGroups are left alone, in virtual time")
)

// Idle groups keep their leaders by pulses alone, and lose those that have failed although their hosts live.
func TestIdleGroups(t *testing.T) {
	for _, row := range []struct {
		name   string
		kind   sim.Idleness
		groups int
	}{
		{"left alone", sim.LeftAlone, 50},
		{"the leader is cut off", sim.LeaderCutOff, 20},
		{"the leader stops", sim.LeaderStops, 5},
		{"the followers stop", sim.FollowersStop, 5},
	} {
		t.Run(row.name, func(t *testing.T) {
			var messages atomic.Uint64
			eachSeed(1, *idles, func(seed uint64) (more bool) {
				sent, err := sim.Idle(sim.Options{Seed: seed}, row.groups, *idleFor, row.kind)
				if err != nil {
					t.Error(err)
				}
				messages.Add(uint64(sent))
				return !t.Failed()
			})
			if n := messages.Load(); n > 0 && !t.Failed() {
				t.Errorf("idle groups have sent %d messages", n)
			}
		})
	}
}
