package timers_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/millracetest"
)

// TestNoTimePassesWithoutALeader: while no member leads, log time stands still, except what it takes to
// notice. So an alarm in half a minute does not ring because the group had no leader for ten.
func TestNoTimePassesWithoutALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		rings := map[string][]ring{}
		c := millracetest.New(t, 3, func(id uint64) millrace.Machine[set, time.Duration] {
			a := &alarms{mu: &mu, rings: rings, ticks: map[uint64]bool{}, id: id}
			return millrace.InMemory(a, millrace.JSON[set]()).Timers(&a.queue, set{})
		})
		leader := c.Leader(t.Context())
		at, err := c.Node(leader).Propose(t.Context(), set{"egg", 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		first, second := leader%3+1, (leader+1)%3+1
		c.Kill(first)
		c.Kill(second)
		<-time.After(10 * time.Minute)
		c.Restart(first)
		c.Restart(second)
		now, err := c.Node(c.Leader(t.Context())).Propose(t.Context(), set{"egg", 30 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if passed := now - at; passed > 5*time.Second || len(rings["egg"]) > 0 {
			t.Errorf("%v have passed without a leader, and the alarm has rung %v", passed, rings["egg"])
		}
	})
}
