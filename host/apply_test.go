package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// A state machine that fails or panics halts. With the pipelines that apply in the turn its group stops.
// Waiting clients are answered at once, and so are later ones.
func TestStateMachineThatFails(t *testing.T) {
	broken := errors.New("disk of the state machine is full")
	for _, p := range pipeline.All {
		for name, fail := range map[string]func(statemachine.Entry) error{
			"error": func(statemachine.Entry) error { return broken },
			"panic": func(e statemachine.Entry) error { panic(fmt.Errorf("%w at %d", broken, e.Index)) },
		} {
			t.Run(p.Name()+"/"+name, func(t *testing.T) {
				l := openTestHost(t, 3, WithPipeline(p))
				l.machine.fail = fail
				l.lead()
				first := l.submit("x")
				l.manual.runIdle()
				second := l.submit("y") // in the log, when the first is applied
				l.manual.runIdle()
				l.deliver(raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1})
				err, stops := l.group.Halted(), p.Name() != "async"
				if (l.group.Err() != nil) != stops {
					t.Errorf("Err is %v", l.group.Err())
				}
				if stops {
					err = l.group.Err()
				}
				if err == nil || !strings.Contains(err.Error(), broken.Error()) || !strings.Contains(err.Error(), "4") {
					t.Fatalf("the group stopped with %v", err)
				}
				if name == "error" && !errors.Is(err, broken) {
					t.Errorf("%v does not wrap the cause", err)
				}
				select {
				case <-l.group.Failed():
					if !stops {
						t.Error("Failed is closed")
					}
				default:
					if stops {
						t.Error("Failed is open")
					}
				}
				// P2 and P3 acknowledge at commit, before the state machine has applied it.
				if _, err := poll(t, first); p.Name() == "basic" && !outcome.MayHaveCommitted(err) || p.Name() != "basic" && err != nil {
					t.Errorf("first: %v", err)
				}
				if _, err := l.group.Submit([]byte("z")); !errors.Is(err, outcome.ErrMachineHalted) && !errors.Is(err, outcome.ErrStopped) || outcome.MayHaveCommitted(err) {
					t.Errorf("later: %v", err)
				}
				if len(l.machine.entries) != 0 {
					t.Errorf("applied %v", l.machine.entries)
				}
				if err := l.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if _, err := poll(t, second); !outcome.MayHaveCommitted(err) {
					t.Errorf("second: %v", err)
				}
				if got := l.group.Err(); stops && got.Error() != err.Error() {
					t.Errorf("Close changed the cause to %v", got)
				}
			})
		}
	}
}
