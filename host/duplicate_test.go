package host

import (
	"context"
	"testing"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// duplicateCaller looks at the state machine when it is told that its command was applied before.
type duplicateCaller struct {
	echoCaller
	machine *echoMachine
	seen    *int // commands that were applied when it was told
}

func (c *duplicateCaller) Duplicate(outcome.Receipt, []byte, bool) { *c.seen = len(c.machine.applied) }

// A caller that is told that its command was applied before reads the state, and must find the command there:
// also if both copies are committed at the same moment.
func TestADuplicateIsToldAfterTheCommandIsApplied(t *testing.T) {
	l := openTestHost(t, 3)
	defer l.Close(context.Background())
	m, seen := &echoMachine{}, -1
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(m, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	l.leadGroup(g)
	mark := session.Mark{ID: session.ID{Client: [16]byte{1}}, Number: 1, Low: 1}
	first, second := newEchoCaller(), &duplicateCaller{*newEchoCaller(), m, &seen}
	for _, owner := range []outcome.Caller{first, second} {
		c := first.call("x")
		c.Owner, c.Session = owner, &mark
		if err := g.Call(c); err != nil {
			t.Fatal(err)
		}
	}
	l.manual.runIdle()
	l.deliverTo(2, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 2})
	if len(m.applied) != 1 || seen != 1 {
		t.Errorf("%d commands are applied, and %d were when the duplicate was told, want 1 and 1", len(m.applied), seen)
	}
}
