package host

import (
	"errors"
	"strings"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/proposals"
	"github.com/millrace/millrace/host/outcome"
	"github.com/millrace/millrace/host/statemachine"
)

// A leader whose state machine is stuck refuses commands when what it has not applied takes too much memory.
// It does not try again all the time, keeps what it has taken in bounds, and goes on when the machine does.
func TestStuckMachineBoundsCalls(t *testing.T) {
	l := openTestHostWith(t, 1, func(c *Config) { c.MemoryBytes = minMemoryBytes })
	g, err := l.OpenGroup(t.Context(), GroupConfig{ID: 2}, Commands(&echoMachine{}, statemachine.CommandOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	for g.Status().Role != event.RoleLeader {
		l.manual.tick()
	}
	l.manual.runIdle()
	var stuck []*manualTask
	for _, task := range l.manual.tasks {
		if _, ok := task.worker.(*apply.Lane); ok {
			task.dead = true
			stuck = append(stuck, task)
		}
	}
	var taken []*echoCaller
	bytes, most := int64(0), l.memory.proposed.Max+l.memory.waiting.Max
	for refused := 0; refused < 10; {
		e := newEchoCaller()
		c := e.call(strings.Repeat("x", 1<<10))
		switch err := g.Call(c); {
		case err == nil:
			taken, bytes = append(taken, e), bytes+proposals.BytesOf(c.Data)
		case errors.Is(err, outcome.ErrOverloaded):
			refused++
		default:
			t.Fatal(err)
		}
		l.manual.runIdle() // which panics if the turns never end
		if refused > 0 {
			l.manual.tick()
		}
		if bytes > most {
			t.Fatalf("%d calls of %d bytes were taken, and none is applied; want at most %d bytes", len(taken), bytes, most)
		}
	}
	for _, task := range stuck {
		task.dead = false
		task.Wake()
	}
	l.manual.runIdle()
	for range 10 {
		l.manual.tick()
	}
	for i, e := range taken {
		if len(e.result) != 1 {
			t.Fatalf("call %d of %d has no result", i, len(taken))
		}
	}
}
