package sched

import (
	"testing"
	"time"
)

// A wait for more commands has to pay for itself.
func TestGatheringPays(t *testing.T) {
	var now time.Duration
	g := Gathering{Now: func() time.Duration { return now }}
	for i, step := range []struct {
		pass          time.Duration
		begins        bool
		before, after int
		took          time.Duration
	}{
		{begins: true, before: 1, after: 50, took: 4 * time.Millisecond},   // 80 µs a command
		{begins: true, before: 1, after: 1, took: 90 * time.Microsecond},   // for nothing, but cheap
		{begins: true, before: 1, after: 20, took: 200 * time.Millisecond}, // the program computes something
		{begins: false},
		{pass: 1599 * time.Millisecond, begins: false},
		{pass: time.Millisecond, begins: true, before: 3, after: 3, took: 100 * time.Millisecond}, // again: twice as long
		{pass: 1599 * time.Millisecond, begins: false},
		{pass: time.Millisecond, begins: true, before: 3, after: 3, took: 10 * time.Millisecond},
		{pass: 319 * time.Millisecond, begins: false},
		{pass: time.Millisecond, begins: true, before: 3, after: 4, took: time.Microsecond}, // it pays again
		{begins: true, before: 3, after: 3, took: 10 * time.Millisecond},
		{pass: 9 * time.Millisecond, begins: false},
		{pass: time.Millisecond, begins: true},
	} {
		now += step.pass
		if got := g.Begins(step.before); got != step.begins {
			t.Fatalf("step %d: begins is %t, want %t", i, got, step.begins)
		}
		if step.begins {
			g.Ends(step.took, step.after)
		}
	}
}
