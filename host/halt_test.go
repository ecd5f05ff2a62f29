package host_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
	"github.com/millrace/millrace/raft/raftpb"
)

// poisoned refuses some commands, as every copy of it does.
type poisoned struct{ applied []string }

func (p *poisoned) Apply(entries []statemachine.Entry) error {
	for i := range entries {
		switch text := string(entries[i].Data); text {
		case "panic":
			panic("no such shelf")
		case "error":
			return errors.New("no such shelf")
		default:
			p.applied = append(p.applied, text)
		}
	}
	return nil
}

// A command that the machine cannot apply halts the machine and not the group, and the group then skips it.
// The machine has no snapshot to begin from, so it passes the command at its next start.
func TestPoisonCommandIsSkipped(t *testing.T) {
	for _, poison := range []string{"panic", "error"} {
		for _, nonBlocking := range []bool{false, true} {
			ctx := deadline(t)
			c := clusterConfig(1, scratch.Dir(t), map[uint64]string{1: "127.0.0.1:0"})
			open := func(m *poisoned) (*host.Host, *host.Group) {
				t.Helper()
				h, err := host.Open(ctx, c, host.WithLogger(quiet))
				if err != nil {
					t.Fatal(err)
				}
				g, err := h.OpenGroup(ctx, host.GroupConfig{ID: theGroup, NonBlocking: nonBlocking}, m)
				if err != nil {
					t.Fatal(err)
				}
				return h, g
			}
			applied := func(g *host.Group, index uint64) error {
				var r host.Read
				g.StartApplied(&r, index)
				_, err := r.Wait(ctx)
				return err
			}
			m := &poisoned{}
			h, g := open(m)
			if _, err := g.WaitLeader(ctx); err != nil {
				t.Fatal(err)
			}
			first, err := g.Propose(ctx, []byte("a"))
			if err == nil {
				err = applied(g, first.Index) // or the two are one batch
			}
			if err != nil {
				t.Fatal(err)
			}
			r, err := g.Propose(ctx, []byte(poison))
			if err != nil {
				t.Fatal(err)
			}
			var halted *outcome.HaltedError
			if err := applied(g, r.Index); !errors.As(err, &halted) || !errors.Is(err, outcome.ErrMachineHalted) || halted.First != r.Index || halted.Last != r.Index || !strings.Contains(err.Error(), "no such shelf") {
				t.Fatalf("a read: %v, want the machine halted at %d", err, r.Index)
			}
			if _, err := g.Propose(ctx, []byte("b")); !errors.Is(err, outcome.ErrMachineHalted) || outcome.MayHaveCommitted(err) {
				t.Errorf("a command: %v", err)
			}
			if d := g.Explain(); g.Err() != nil || !d.Has(diagnosis.CodeMachineHalted) {
				t.Errorf("Err %v, %v", g.Err(), d)
			}
			if err := g.SkipCommand(ctx, raftpb.Position{Index: r.Index - 1}); !errors.Is(err, outcome.ErrMembersUnchanged) {
				t.Errorf("to skip a command that is applied: %v", err)
			}
			if err := g.SkipCommand(ctx, raftpb.Position{Index: r.Index}); err != nil {
				t.Fatalf("SkipCommand: %v", err)
			}
			if err := g.SkipCommand(ctx, raftpb.Position{Index: r.Index}); err != nil {
				t.Errorf("SkipCommand again: %v", err)
			}
			if err := h.Close(ctx); err != nil {
				t.Fatal(err)
			}
			m = &poisoned{}
			h, g = open(m)
			last, err := g.Propose(ctx, []byte("b"))
			for err != nil && ctx.Err() == nil && errors.Is(err, outcome.ErrNotLeader) {
				if _, err := g.WaitLeader(ctx); err != nil {
					t.Fatal(err)
				}
				last, err = g.Propose(ctx, []byte("b"))
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := applied(g, last.Index); err != nil {
				t.Fatalf("after a start: %v", err)
			}
			if d := g.Explain(); g.Halted() != nil || d.Has(diagnosis.CodeMachineHalted) {
				t.Errorf("still %v, %v", g.Halted(), d)
			}
			if err := h.Close(context.WithoutCancel(ctx)); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(m.applied, ""); got != "ab" {
				t.Errorf("applied %q, want ab", got)
			}
		}
	}
}
