package millracetest_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/millracetest"
)

// The member with the highest priority leads soon after it can, and again after it was away; and when the
// members want another one while they run, that one leads. Commands go on meanwhile.
func TestThePreferredMemberLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		three := millrace.Placement{Priorities: map[uint64]int{3: 5, 1: 0}}
		c := newCounters(t, millracetest.WithGroup(millrace.GroupConfig{Placement: three}),
			millracetest.WithHost(func(c *host.Config) { c.Zone = "one for all" }))
		commands := int64(0)
		leads := func(id uint64) {
			t.Helper()
			for began := time.Now(); c.Leader(ctx) != id; <-time.After(time.Second) {
				if time.Since(began) > time.Minute {
					t.Fatalf("host %d should lead, and host %d does after a minute: %+v", id, c.Leader(ctx), c.Node(c.Leader(ctx)).Placement())
				}
				if _, err := c.Node(2).Propose(ctx, 1); err != nil {
					t.Fatal(err)
				}
				commands++
			}
		}
		leads(3)
		c.Kill(3)
		leads(2) // 1 has priority 0
		c.Restart(3)
		leads(3)
		for id := range uint64(3) {
			if err := c.Node(id + 1).SetPlacement(millrace.Placement{Priorities: map[uint64]int{2: 2}}); err != nil {
				t.Fatal(err)
			}
		}
		leads(2)
		if s := c.Node(2).Placement(); s.Wants != 0 || s.Recent == 0 {
			t.Errorf("the leader says %+v", s)
		}
		if sum, err := c.Node(2).Propose(ctx, 0); err != nil || sum != commands {
			t.Errorf("%d commands were acknowledged, and the sum is %d, %v", commands, sum, err)
		}
	})
}
