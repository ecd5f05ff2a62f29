package host

import (
	"context"
	"errors"
	"testing"

	"github.com/millrace/millrace/host/outcome"
)

// A caller that waits for a leader until its context ends learns that the group is not founded, if that is
// why.
func TestWaitForALeaderUntilTheContextEnds(t *testing.T) {
	l := openUnmet(t)
	if _, err := l.group.WaitLeader(over()); !errors.Is(err, outcome.ErrNotFounded) || !errors.Is(err, context.Canceled) {
		t.Errorf("a group that is not founded: %v", err)
	}
	l = openSecond(t)
	for range 4 * l.config.electionTicks() {
		l.manual.tick()
	}
	if _, known := l.group.Leader(); known {
		t.Fatal("setup: a leader is known that was not heard for four election timeouts")
	}
	if _, err := l.group.WaitLeader(over()); errors.Is(err, outcome.ErrNotFounded) || !errors.Is(err, context.Canceled) {
		t.Errorf("a founded group: %v", err)
	}
}

// A host whose state machines work has as many lanes as it was given, and none in the place of another.
func TestLanesThatWorkHaveNoSubstitutes(t *testing.T) {
	l := openTestHost(t, 1)
	if m := l.Metrics().Lanes; m.ApplyLanes < 1 || m.ApplySubstitutes != 0 {
		t.Errorf("%d lanes, %d of them in the place of others", m.ApplyLanes, m.ApplySubstitutes)
	}
}
