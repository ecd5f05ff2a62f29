package plans

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
)

// member is a scripted member.
type member struct {
	roster *membership.Roster
	err    error
	asked  []Request
}

func (m *member) Roster() *membership.Roster { return m.roster }
func (m *member) Err() error                 { return m.err }
func (m *member) Ask(q Request)              { m.asked = append(m.asked, q) }

func newExecutions() (*member, *Executions, *atomic.Int64) {
	m, x, running := new(member), new(Executions), new(atomic.Int64)
	x.Init(m, 7, 1, running)
	return m, x, running
}

// version waits for a roster.
func version(x *Executions, v uint64) *Execution {
	e := x.New(append([]byte{entry.CancelKind}, make([]byte, 16)...), "version %d", v)
	e.Outcome = func(r *membership.Roster) (bool, error) { return r.Version >= v, nil }
	return e.Start()
}

// A caller waits until a roster says that its entry is in force, and the leader is asked until then.
func TestExecution(t *testing.T) {
	m, x, running := newExecutions()
	e := version(x, 5)
	if done, _ := e.Poll(); done || len(m.asked) != 1 || running.Load() != 1 {
		t.Fatalf("done %t, asked %d times, %d running", done, len(m.asked), running.Load())
	}
	m.roster = &membership.Roster{Version: 4}
	if x.Ask(); len(m.asked) != 2 {
		t.Errorf("asked %d times, want 2", len(m.asked))
	}
	m.roster = &membership.Roster{Version: 5}
	x.Poll()
	m.roster = &membership.Roster{} // the outcome stays
	if done, err := e.Poll(); !done || err != nil || running.Load() != 0 {
		t.Errorf("done %t, %v, %d running", done, err, running.Load())
	}
	select {
	case <-e.Done():
	default:
		t.Error("Done is open")
	}
	if x.Ask(); len(m.asked) != 2 {
		t.Errorf("asked %d times, want 2: it has ended", len(m.asked))
	}
}

// An execution ends when the leader refuses its entry, or the group stops. The first outcome counts.
func TestExecutionThatFails(t *testing.T) {
	m, x, running := newExecutions()
	m.roster = &membership.Roster{}
	refused, stopped := errors.New("refused"), errors.New("stopped")
	e := version(x, 5)
	x.Refuse(membership.PlanID{1}, refused)
	if done, _ := e.Poll(); done {
		t.Error("the refusal of another entry ends it")
	}
	x.Refuse(e.ID(), refused)
	other := version(x, 6)
	m.err = stopped
	x.Poll()
	if _, err := e.Poll(); !errors.Is(err, refused) {
		t.Errorf("it was refused: %v", err)
	}
	if _, err := other.Poll(); !errors.Is(err, stopped) || running.Load() != 0 {
		t.Errorf("the group has stopped: %v, %d running", err, running.Load())
	}
}
