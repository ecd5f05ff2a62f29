package host

import (
	"fmt"
	"testing"

	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
	"github.com/millrace/millrace/internal/scratch"
)

// echoMachine gives each caller its command as the result.
type echoMachine struct{ applied []string }

func (m *echoMachine) Apply(batch []statemachine.Command) error {
	for i := range batch {
		m.applied = append(m.applied, string(batch[i].Data))
		if batch[i].Caller != nil {
			batch[i].Caller.(*echoCaller).result <- string(batch[i].Data)
		}
	}
	return nil
}

type echoCaller struct {
	committed chan outcome.Receipt
	failed    chan error
	result    chan string
}

func newEchoCaller() *echoCaller {
	return &echoCaller{make(chan outcome.Receipt, 1), make(chan error, 1), make(chan string, 1)}
}

func (c *echoCaller) Committed(r outcome.Receipt)                   { c.committed <- r }
func (c *echoCaller) Failed(err error)                              { c.failed <- err }
func (c *echoCaller) Duplicate(_ outcome.Receipt, _ []byte, _ bool) {}

func (c *echoCaller) call(command string) *Call {
	return &Call{Data: append(make([]byte, CallRoom), command...), Owner: c}
}

// A caller gets the result that the state machine of its host computed for its command.
func TestCallGetsItsResult(t *testing.T) {
	m := &echoMachine{}
	h, err := Open(t.Context(), Config{ID: 1, Dir: scratch.Dir(t), Members: map[uint64]string{1: "127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close(t.Context())
	g, err := h.OpenGroup(t.Context(), GroupConfig{ID: 1}, Commands(m, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.WaitLeader(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		c := newEchoCaller()
		if err := g.Call(c.call(fmt.Sprint("command ", i))); err != nil {
			t.Fatal(err)
		}
		if got, want := <-c.result, fmt.Sprint("command ", i); got != want {
			t.Fatalf("result %q, want %q", got, want)
		}
		<-c.committed
	}
}
