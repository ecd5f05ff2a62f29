package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
)

// All members apply the same commands in the same order, in both modes and over both logs; the learner that
// joins later too.
func TestEveryMemberAppliesTheSame(t *testing.T) {
	for _, mode := range []string{"sync", "async"} {
		for _, kind := range []string{"memory", "wal"} {
			t.Run(mode+" over "+kind, func(t *testing.T) {
				t.Parallel()
				c := started(t, mode, kind, t.TempDir())
				propose(t, c, 0, 5)
				if err := c.addLearner(t.Context(), 4); err != nil {
					t.Fatal("the learner was not added:", err)
				}
				if err := c.start(4); err != nil {
					t.Fatal("member 4 did not start:", err)
				}
				propose(t, c, 5, 10)
				sameCommands(t, c, 10, 1, 2, 3, 4)
			})
		}
	}
}

// A cluster over wal that stops and starts again has every command that it had acknowledged, and takes new
// ones.
func TestRestartOverWAL(t *testing.T) {
	for _, mode := range []string{"sync", "async"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := started(t, mode, "wal", dir)
			propose(t, c, 0, 3)
			if err := c.stop(); err != nil {
				t.Fatal("the cluster failed:", err)
			}
			c = started(t, mode, "wal", dir)
			propose(t, c, 3, 4)
			sameCommands(t, c, 4, 1, 2, 3)
		})
	}
}

func TestUnknownMode(t *testing.T) {
	if err := run(t.Context(), "fast", "wal", t.TempDir()); !errors.Is(err, errNoMode) {
		t.Errorf("mode fast: have %v, want %v", err, errNoMode)
	}
}

func started(t *testing.T, mode, kind, dir string) *cluster {
	t.Helper()
	c, err := newCluster(mode, kind, dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.stop(); err != nil && !errors.Is(err, context.Canceled) {
			t.Error("the cluster failed:", err)
		}
	})
	if err := c.start(1, 2, 3); err != nil {
		t.Fatal(err)
	}
	return c
}

func propose(t *testing.T, c *cluster, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := c.propose(t.Context(), fmt.Sprintf("command %d", i)); err != nil {
			t.Fatalf("command %d: %v", i, err)
		}
	}
}

func sameCommands(t *testing.T, c *cluster, n int, ids ...uint64) {
	t.Helper()
	var want []string
	for i := range n {
		want = append(want, fmt.Sprintf("command %d", i))
	}
	for _, id := range ids {
		have, err := c.members[id].machine.wait(t.Context(), n)
		if err != nil || !slices.Equal(have, want) {
			t.Errorf("member %d applied %q (%v), want %q", id, have, err, want)
		}
	}
}
