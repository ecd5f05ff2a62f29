package host

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/diagnosis"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/workqueue"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/raft/raftpb"
)

func mixed() []raftpb.Entry {
	return []raftpb.Entry{
		{Index: 1, Term: 1}, // a leader's first
		{Index: 2, Term: 1, Data: []byte("a")},
		{Index: 3, Term: 1, Data: []byte("b")},
		{Index: 4, Term: 1, Type: raftpb.EntryConfChange, Data: []byte("c")},
		{Index: 5, Term: 2},
		{Index: 6, Term: 2, Data: []byte("d")},
		{Index: 7, Term: 3},
	}
}

// shape is a state machine that records the batches of its calls.
type shape struct{ calls []string }

func (s *shape) Apply(entries []statemachine.Entry) error {
	var b strings.Builder
	for _, e := range entries {
		b.Write(e.Data)
	}
	if cap(entries) != len(entries) {
		return errors.New("an append by the state machine would write into the next entries")
	}
	s.calls = append(s.calls, b.String())
	return nil
}

// The state machine gets commands and none of Raft's own entries, in as few calls as possible.
func TestApplyFiltersRaftsOwn(t *testing.T) {
	m := &shape{}
	a := applyQueue{machine: m, group: &Group{}}
	if err := a.apply(mixed()); err != nil {
		t.Fatal(err)
	}
	if err := a.apply(mixed()[:1]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"ab", "d"}, m.calls); diff != "" {
		t.Error(diff)
	}
	if a.calls.Load() != 2 || a.entries.Load() != 3 {
		t.Errorf("counted %d calls and %d commands", a.calls.Load(), a.entries.Load())
	}
}

// Everything queued is applied in one round, and answered message by message.
func TestApplyLaneJoinsWhatIsQueued(t *testing.T) {
	s := newTestLane(t)
	m := &shape{}
	q := newApplyQueue(s.group, m)
	q.group.machine.apply = q
	q.group.life.status.Store(diagnosis.Status{})
	p := new(apply.Lanes)
	p.Open(apply.Wiring{Now: func() time.Duration { return 0 }, Ticks: func() int64 { return 0 }, Start: func(string, env.Worker) env.Task { return &manualTask{} }}, 2)
	for i := range uint64(3) {
		entries := []raftpb.Entry{{Index: i + 1, Term: 1, Data: []byte{'a' + byte(i)}}}
		q.Put(raftpb.Message{Entries: entries, Responses: []raftpb.Message{{Type: raftpb.MsgStorageApplyResp, Entries: entries}}})
		p.Enqueue(&q.seat)
	}
	for _, l := range p.All() {
		for l.RunOnce() {
		}
	}
	answers := s.toGroup()
	if diff := cmp.Diff([]string{"abc"}, m.calls); diff != "" {
		t.Error(diff)
	}
	if len(answers) != 3 || answers[2].Entries[0].Index != 3 {
		t.Errorf("answered %v", answers)
	}
}

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

// A queue that has been worked off keeps no message: each keeps an array of the core alive, and the group may
// be idle from now on.
func TestApplyKeepsNothingThatIsDone(t *testing.T) {
	s := newTestLane(t)
	q := &applyQueue{machine: &shape{}, group: s.group}
	for i := range uint64(3) {
		q.Put(raftpb.Message{
			Type: raftpb.MsgStorageApply, Entries: []raftpb.Entry{{Index: i + 1, Data: []byte("x")}},
			Responses: []raftpb.Message{{Type: raftpb.MsgStorageApplyResp, Index: i + 1}},
		})
	}
	for !q.Empty() || len(q.work) > 0 {
		q.Round(1)
	}
	if n := len(s.toGroup()); n != 3 {
		t.Errorf("%d answers, want 3", n)
	}
	for _, of := range append(q.Arrays(), q.work[:cap(q.work)]) {
		for i := range of {
			if of[i].Responses != nil || of[i].Entries != nil {
				t.Errorf("the queue still has %+v", of[i])
			}
		}
	}
}

// What waits until everything is applied is called, also if it came while there was work: nothing else may
// come for this group.
func TestApplyEndsWithWhatIsDrained(t *testing.T) {
	s := newTestLane(t)
	q := &applyQueue{machine: &shape{}, group: s.group}
	q.Put(raftpb.Message{Type: raftpb.MsgStorageApply, Entries: []raftpb.Entry{{Index: 1, Data: []byte("x")}}})
	var applied uint64
	drained := func() { applied = q.position().Index }
	q.drained.Store(&drained)
	for q.Round(workqueue.MaxRoundBytes) || !q.Empty() { // as Wants decides
	}
	if applied != 1 {
		t.Errorf("when the lanes leave the group, entry %d was applied before the function was called, want 1", applied)
	}
}
