package host

import (
	"context"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

// applied is a state machine that records, in a list that several share, that it was called.
type applied struct {
	id    uint64
	calls *[]uint64
}

func (a applied) Apply([]statemachine.Entry) error {
	*a.calls = append(*a.calls, a.id)
	return nil
}

// holdApply keeps the apply lanes of a manual host from working until release is called.
func (l *testHost) holdApply() (release func()) {
	var held []*manualTask
	for _, lane := range l.appliers.All() {
		task := lane.Task().(*manualTask)
		task.dead = true
		held = append(held, task)
	}
	return func() {
		for _, task := range held {
			task.dead = false
		}
		l.manual.runIdle()
	}
}

// Groups that lead here are applied before those that follow, because their clients wait: also if they came
// later.
func TestLeadersAreAppliedFirst(t *testing.T) {
	l := openTestHost(t, 3)
	var calls []uint64
	for id := uint64(2); id <= 5; id++ {
		l.open(id, applied{id, &calls})
	}
	leads := l.Group(5)
	l.leadGroup(leads)
	release := l.holdApply()
	for id := uint64(2); id <= 4; id++ {
		l.commit(id, 1, 2)
	}
	if _, err := leads.Submit([]byte("x")); err != nil {
		t.Fatal(err)
	}
	l.manual.runIdle()
	l.deliverTo(5, raftpb.Message{Type: raftpb.MsgAppResp, Term: 1, Index: begun + 1})
	if len(calls) > 0 {
		t.Fatalf("setup: groups %v were applied", calls)
	}
	release()
	// One of the others may have been first in the lane's hands.
	if at := slices.Index(calls, 5); at < 0 || at > 1 || len(calls) != 4 {
		t.Errorf("groups were applied in the order %v, want the leader's, 5, in front", calls)
	}
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
}

// A state machine that is declared NonBlocking needs no lane; one that is not waits for one.
func TestNonBlockingMachineIsAppliedInTheTurn(t *testing.T) {
	l := openTestHost(t, 3)
	inline, inLane := &commands{}, &commands{}
	if _, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2, NonBlocking: true}, inline); err != nil {
		t.Fatal(err)
	}
	l.open(3, inLane)
	release := l.holdApply()
	for id := uint64(2); id <= 3; id++ {
		l.commit(id, 1, 3)
	}
	if a, b := len(inline.entries), len(inLane.entries); a != 2 || b != 0 {
		t.Errorf("with lanes that stand still %d entries are applied in the turn and %d in a lane, want 2 and 0", a, b)
	}
	release()
	if a, b := len(inline.entries), len(inLane.entries); a != 2 || b != 2 {
		t.Errorf("in the end %d and %d of 2 entries are applied", a, b)
	}
	for id := uint64(2); id <= 3; id++ {
		if s := l.Group(id).Status(); s.Applied != 2 || s.AppliedCommands != 2 {
			t.Errorf("group %d: %+v, want all applied", id, s)
		}
	}
	if err := l.Close(context.Background()); err != nil {
		t.Error(err)
	}
}
