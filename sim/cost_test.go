package sim_test

import (
	"testing"

	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/sim"
)

// What a round costs is counted, so that a change which adds a wake or a message is seen. The bounds are what
// was reached (with 60 clients 15.2 wakes on average of six seeds, 16.1 with this one), and some room;
// Decision 0012 has the history.
func TestCostOfARound(t *testing.T) {
	for _, row := range []struct {
		clients, rounds int
		wakes, messages float64
	}{{1, 40, 17, 6}, {16, 40, 17, 6}, {60, 40, 17, 5}, {100, 40, 17, 5}, {300, 15, 16, 5}, {1000, 5, 12, 4}} {
		c, err := sim.MeasureCost(1, row.clients, row.rounds)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d clients: %v", row.clients, c)
		if c.Duties > 1.5*c.Turns {
			t.Errorf("%d clients: %.1f calls of duties for %.1f turns of a round", row.clients, c.Duties, c.Turns)
		}
		if c.Entries == 0 || c.Entries > maxEntries {
			t.Errorf("%d clients: %.1f entries in a round of %.1f commands, want %.1f at most", row.clients, c.Entries, c.Commands, maxEntries)
		}
		if c.Wakes() > row.wakes || c.Messages > row.messages {
			t.Errorf("%d clients: more than %.0f wakes or %.0f messages in a round", row.clients, row.wakes, row.messages)
		}
	}
}

// maxEntries bounds the entries of a round: what a turn takes is one.
const maxEntries = 1.5

// maxLocks bounds the locks of a turn in a steady round, on average of the turns of all members. One is of
// its shard, under which it also gets its inputs. Each of what it takes or hands over has one: commands, a
// write, entries to apply, answers. Locks are counted with a build tag:
//
//	go test -tags countlocks ./sim -run TestASteadyRoundCallsNoDuty -v
const maxLocks = 3.0

// A group that replicates commands, with a warm leader and no time passing, calls no duty and takes few
// locks.
func TestASteadyRoundCallsNoDuty(t *testing.T) {
	for _, clients := range []int{1, 16} {
		c, err := sim.MeasureSteadyCost(1, clients, 40)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d clients: %v", clients, c)
		if c.Duties > 0 {
			t.Errorf("%d clients: %.2f calls of duties in a round, want none", clients, c.Duties)
		}
		if locks := c.LocksOfATurn(); lock.Counts && (locks == 0 || locks > maxLocks) {
			t.Errorf("%d clients: a turn takes %.2f locks, want %v at most", clients, locks, maxLocks)
		}
	}
}

// Groups of the same hosts share what a round does: one write and one sync of each log, and frames with the
// messages of many groups. Turns are each group's own, about six for a batch.
func TestCostOfARoundOfManyGroups(t *testing.T) {
	for _, row := range []struct{ groups, clients, rounds int }{{8, 8, 40}, {48, 48, 20}, {48, 480, 5}} {
		c, err := sim.MeasureGroupsCost(1, row.groups, row.clients, row.rounds)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%d groups, %d clients: %v", row.groups, row.clients, c)
		if c.Writes == 0 || c.Writes > 1.2 {
			t.Errorf("%d groups: %.1f writes of a log for each sync, want 1", row.groups, c.Writes)
		}
		if c.Readers == 0 || c.Readers > maxFramesOfGroups {
			t.Errorf("%d groups: %.1f frames in a round, want %d at most: the messages of the groups travel together", row.groups, c.Readers, maxFramesOfGroups)
		}
	}
}

// maxFramesOfGroups bounds the frames of a round of many groups. There are six pairs of hosts in both
// directions, and each of them has appends and answers.
const maxFramesOfGroups = 9
