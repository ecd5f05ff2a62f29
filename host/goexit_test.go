package host_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
)

// exiting is a state machine that ends the goroutine that calls it.
type exiting struct{}

func (exiting) Apply([]statemachine.Entry) error { runtime.Goexit(); return nil }

// A state machine that ends its goroutine is halted, also where it is called in a turn, and the other
// groups of the shard and Close go on.
func TestGoexitInApply(t *testing.T) {
	for _, nonBlocking := range []bool{false, true} {
		ctx := deadline(t)
		c := clusterConfig(1, scratch.Dir(t), map[uint64]string{1: "127.0.0.1:0"})
		h, err := host.Open(context.Background(), c, host.WithLogger(quiet))
		if err != nil {
			t.Fatal(err)
		}
		g, err := h.OpenGroup(ctx, host.GroupConfig{ID: theGroup, NonBlocking: nonBlocking}, exiting{})
		if err != nil {
			t.Fatal(err)
		}
		other, err := h.OpenGroup(ctx, host.GroupConfig{ID: theGroup + 1}, newJournal())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.WaitLeader(ctx); err != nil {
			t.Fatal(err)
		}
		_, _ = g.Propose(ctx, []byte("a")) // may be acknowledged before it is applied
		var r host.Read
		g.StartApplied(&r, 1<<40)
		if _, err := r.Wait(ctx); !errors.Is(err, outcome.ErrMachineHalted) || !strings.Contains(err.Error(), "ended its goroutine") {
			t.Errorf("the machine is halted with %v", err)
		}
		if _, err := g.Propose(ctx, []byte("b")); err == nil || ctx.Err() != nil {
			t.Errorf("a later command: %v", err)
		}
		if _, err := other.WaitLeader(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := other.Propose(ctx, []byte("c")); err != nil {
			t.Errorf("a command of the other group: %v", err)
		}
		if err := h.Close(ctx); ctx.Err() != nil {
			t.Errorf("Close: %v", err)
		}
	}
}
