package smtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/timers"
)

// eggs is a machine of egg timers. The empty command is the tick.
type eggs struct {
	queue   timers.Queue[string]
	deaf    bool // it lets nothing expire by a tick
	careful bool // it keeps the timers in its snapshots
}

func (e *eggs) Apply(batch []millrace.Command[string], results []string) error {
	for i, c := range batch {
		if !e.deaf || c.Value != "" {
			for name := range e.queue.Expire(c.Time, 1) {
				results[i] = name
			}
		}
		if c.Value != "" {
			e.queue.Set(c.Value, c.Time+time.Minute)
		}
	}
	return nil
}

func (e *eggs) Snapshot() (millrace.Snapshot, error) {
	var kept timers.Queue[string]
	if e.careful {
		kept.Replace(e.queue.Clone())
	}
	b, err := kept.MarshalBinary()
	return millrace.BytesSnapshot(b), err
}

func (e *eggs) Restore(_ context.Context, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return e.queue.UnmarshalBinary(b)
}

// TestTimersOfMachines: a machine that does not look at its timers in a tick is found, and one that forgets
// them in a snapshot.
func TestTimersOfMachines(t *testing.T) {
	for _, c := range []struct {
		deaf, careful bool
		want          string
	}{
		{false, true, ""},
		{true, true, "after 1000 ticks at log time 1m0s a timer is still there that was due at 1m0s; Apply must expire timers with each command"},
		{false, false, "the states have a first timer at 1m0s and no timer"},
	} {
		err := check(t, func() millrace.Machine[string, string] {
			e := &eggs{deaf: c.deaf, careful: c.careful}
			return millrace.InMemory(e, millrace.JSON[string]()).Timers(&e.queue, "")
		}, []string{"a", "b", "a", "c", "d", "e", "f", "g"})
		if fmt.Sprint(err) == "<nil>" && c.want != "" || err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("deaf %v, careful %v: %v, want %q", c.deaf, c.careful, err, c.want)
		}
	}
}

// refusing is a machine that refuses a command by an error, as machines of other libraries do.
type refusing struct{ eggs }

func (r *refusing) Apply(batch []millrace.Command[string], results []string) error {
	if batch[0].Value == "b" {
		return errors.New("insufficient funds")
	}
	return nil
}

// TestRefusalsAreNoErrors: a refusal that is an error of Apply is found, and told with the right way.
func TestRefusalsAreNoErrors(t *testing.T) {
	err := check(t, func() millrace.Machine[string, string] {
		return millrace.InMemory(&refusing{}, millrace.JSON[string]())
	}, []string{"a", "b", "c"})
	if err == nil || !strings.Contains(err.Error(), "belongs into the result of its command: insufficient funds") || !strings.Contains(err.Error(), "halts the machine") {
		t.Error(err)
	}
}
