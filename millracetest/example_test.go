package millracetest_test

import (
	"testing"
	"testing/synctest"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/millracetest"
)

func TestSurvivesItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // or without it, in real time
		ctx := t.Context()
		c := millracetest.New(t, 3, func(id uint64) millrace.Machine[int64, int64] {
			return millrace.InMemory(&counter{}, millrace.Binary[int64]())
		})
		leader := c.Leader(ctx)
		if _, err := c.Node(leader).Propose(ctx, 1); err != nil {
			t.Fatal(err)
		}
		c.Kill(leader)
		if sum, err := c.Node(c.Leader(ctx)).Propose(ctx, 1); err != nil || sum != 2 {
			t.Fatal(sum, err)
		}
		c.Restart(leader)
		if sum, err := c.Node(leader).Propose(ctx, 1); err != nil || sum != 3 {
			t.Fatal(sum, err)
		}
	})
}
