package host_test

import (
	"testing"
	"time"
)

// The only voter of a group waits for no other member when it starts again: not for an election timeout,
// which is a day here, and not for two heartbeats.
func TestTheOnlyVoterLeadsAtOnce(t *testing.T) {
	ps := parties(t, 1)
	c := ps[0].config(listOf(ps...))
	c.HeartbeatInterval, c.ElectionTimeout = 2*time.Hour, 20*time.Hour
	for _, command := range []string{"in the first life", "in the second"} {
		ps[0].openConfig(c)
		ps[0].openGroup()
		write(t, ps, command)
		ps[0].close()
	}
}
