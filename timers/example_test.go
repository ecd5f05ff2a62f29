package timers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/timers"
)

// Claim is a command: Holder wants Name for a time. A holder that has it renews it.
type Claim struct {
	Name, Holder string
	TTL          time.Duration
}

// claims is a state machine: what is held by whom, and until when.
type claims struct {
	Holders map[string]string
	Ends    timers.Queue[string] // in log time
}

// Apply says whether the holder of each command has the name.
func (l *claims) Apply(batch []millrace.Command[Claim], results []bool) error {
	for i, c := range batch {
		for name := range l.Ends.Expire(c.Time, 1000) {
			delete(l.Holders, name)
		}
		want := c.Value
		if holder, held := l.Holders[want.Name]; want.Name != "" && (!held || holder == want.Holder) {
			l.Holders[want.Name] = want.Holder
			l.Ends.Set(want.Name, c.Time+want.TTL) // a timer that is set again is renewed
			results[i] = true
		}
	}
	return nil
}

func (l *claims) Snapshot() (millrace.Snapshot, error) {
	b, err := json.Marshal(l)
	return millrace.BytesSnapshot(b), err
}

func (l *claims) Restore(_ context.Context, r io.Reader) error {
	var fresh claims
	if err := json.NewDecoder(r).Decode(&fresh); err != nil {
		return err
	}
	*l = fresh
	return nil
}

// A claim ends at the same command on every member: the first whose log time is not before its deadline.
func ExampleQueue() {
	l := &claims{Holders: map[string]string{}}
	m := millrace.InMemory(l, millrace.JSON[Claim]()).Timers(&l.Ends, Claim{}) // the empty command is the tick
	for _, c := range []millrace.Command[Claim]{
		{Time: 1 * time.Second, Value: Claim{"printer", "ann", 10 * time.Second}},
		{Time: 2 * time.Second, Value: Claim{"printer", "bob", 10 * time.Second}},
		{Time: 9 * time.Second, Value: Claim{"printer", "ann", 10 * time.Second}}, // a renewal
		{Time: 18 * time.Second, Value: Claim{"printer", "bob", 10 * time.Second}},
		{Time: 19 * time.Second}, // a tick
		{Time: 20 * time.Second, Value: Claim{"printer", "bob", 10 * time.Second}},
	} {
		results := make([]bool, 1)
		if err := m.StateMachine().Apply([]millrace.Command[Claim]{c}, results); err != nil {
			panic(err)
		}
		fmt.Println(c.Time, c.Value.Holder, results[0], len(l.Holders))
	}
	// Output:
	// 1s ann true 1
	// 2s bob false 1
	// 9s ann true 1
	// 18s bob false 1
	// 19s  false 0
	// 20s bob true 1
}
