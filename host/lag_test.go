package host

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// openLagging opens a group of this host alone that takes 8 KiB of commands beyond what its machine has
// applied. The machine does not begin until work is called.
func openLagging(t *testing.T, most int64, machine statemachine.Machine) (l *testHost, g *Group, work func()) {
	l = openTestHost(t, 1)
	t.Cleanup(func() { _ = l.Close(over()) })
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2, MaxCommandBytes: 1 << 10, MaxLagBytes: most}, machine)
	if err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	l.leadGroup(g)
	return l, g, l.holdApply()
}

// A leader whose machine is slow takes no more than MaxLagBytes beyond what the machine has, though all of it
// is committed and answered. When the machine has worked, it takes commands again.
func TestASlowMachineDelaysItsClients(t *testing.T) {
	machine := &commands{}
	l, g, work := openLagging(t, 8<<10, machine)
	taken := 0
	for range 100 {
		p, err := g.Submit(make([]byte, 1<<10))
		if err != nil {
			t.Fatal(err)
		}
		l.manual.runIdle()
		if _, err := poll(t, p); err == nil {
			taken++
		} else if !errors.Is(err, outcome.ErrOverloaded) {
			t.Fatal(err)
		}
	}
	if taken != 8 {
		t.Errorf("%d commands of 1 KiB were taken, want 8", taken)
	}
	if page := g.Explain().String(); !strings.Contains(page, "which is more than MaxLagBytes") || !strings.Contains(page, "make the state machine faster") {
		t.Errorf("Explain says:\n%s", page)
	}
	if behind := g.Metrics().Queues.Behind; behind < 8<<10 || behind > 9<<10 {
		t.Errorf("the machine is said to be %d bytes behind", behind)
	}
	work()
	p, err := g.Submit([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	if _, err := poll(t, p); err != nil || len(machine.entries) != 9 {
		t.Errorf("%v; %d commands were applied, want 9", err, len(machine.entries))
	}
	if behind := g.Metrics().Queues.Behind; behind != 0 {
		t.Errorf("the machine is said to be %d bytes behind, and has everything", behind)
	}
}

// Without a bound a leader takes what is committed.
func TestAMachineMayLag(t *testing.T) {
	l, g, _ := openLagging(t, -1, &commands{})
	for range 500 {
		p, err := g.Submit(make([]byte, 1<<10))
		if err != nil {
			t.Fatal(err)
		}
		l.manual.runIdle()
		if _, err := poll(t, p); err != nil {
			t.Fatal(err)
		}
	}
}

// A leader whose machine is halted takes what others forward to it, however far behind it is.
func TestAHaltedMachineHoldsUpNoForwards(t *testing.T) {
	machine := &commands{fail: func(statemachine.Entry) error { return errMachine }}
	l, g, work := openLagging(t, 8<<10, machine)
	p, err := g.Submit([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	work()
	if _, err := poll(t, p); err != nil || g.Halted() == nil {
		t.Fatalf("%v; halted: %v", err, g.Halted())
	}
	for range 20 {
		if err := (*callTurn)(g).Propose([]raftpb.Entry{{Data: make([]byte, 1<<10)}}); err != nil {
			t.Fatal(err)
		}
		l.manual.runIdle()
	}
}

// Calls wait while the machine is behind, and the door says why when too many do. All are answered in the
// end, each once.
func TestCallsWaitForASlowMachine(t *testing.T) {
	l, g, work := openLagging(t, 8<<10, Commands(&echoMachine{}, statemachine.CommandOptions{}))
	var taken []*echoCaller
	for {
		e := newEchoCaller()
		err := g.Call(e.call(strings.Repeat("x", 1<<10)))
		l.manual.runIdle()
		if err == nil {
			taken = append(taken, e)
			continue
		}
		var full *outcome.OverloadedError
		if !errors.As(err, &full) || full.Behind < 8<<10 || !strings.Contains(err.Error(), "has still to apply") {
			t.Fatalf("%d calls were taken, and then: %v", len(taken), err)
		}
		break
	}
	if last := g.Status().LastIndex; last > 20 {
		t.Errorf("the log ends at %d, and the machine may be about eight commands behind", last)
	}
	work()
	for range 200 {
		l.manual.tick()
	}
	for i, e := range taken {
		if len(e.result) != 1 {
			t.Fatalf("call %d of %d has no result", i, len(taken))
		}
	}
}
