package millrace_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/millrace/millrace"
)

// inward is a machine that calls its node.
type inward struct {
	ledger
	call func(where string)
}

func (m *inward) Apply(batch []millrace.Command[[]byte], results []uint64) error {
	m.call("Apply")
	return m.ledger.Apply(batch, results)
}

func (m *inward) Snapshot() (millrace.Snapshot, error) {
	m.call("Snapshot")
	return m.ledger.Snapshot()
}

// Each method that waits is refused at once in Apply, in Snapshot and in the function of ViewExclusive, in
// the turn as on a lane; elsewhere, while the machine is in Apply, it is not.
func TestMachineMustNotCallItsNode(t *testing.T) {
	for _, nonBlocking := range []bool{false, true} {
		m := &inward{call: func(string) {}}
		machine := millrace.InMemory(m, millrace.Bytes())
		if nonBlocking {
			machine = machine.NonBlocking()
		}
		n := open(t, alone(t), machine)
		if err := n.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // a method that is not refused waits for itself
		defer cancel()
		session := n.NewSession()
		methods := map[string]func() error{
			"Propose":       func() error { _, err := n.Propose(ctx, []byte("x"), millrace.InSession(session.Next())); return err },
			"Commit":        func() error { _, err := n.Commit(ctx, []byte("x"), millrace.InSession(session.Next())); return err },
			"Submit":        func() error { _, err := n.Submit([]byte("x"), millrace.InSession(session.Next())); return err },
			"Read":          func() error { _, err := n.Read(ctx, millrace.Linearizable); return err },
			"View":          func() error { return n.View(ctx, millrace.Local, func(millrace.ReadAt) error { return nil }) },
			"ViewExclusive": func() error { return n.ViewExclusive(ctx, millrace.Local, func() error { return nil }) },
			"WaitApplied":   func() error { return n.WaitApplied(ctx, 1) },
			"WaitLeader":    func() error { _, err := n.WaitLeader(ctx); return err },
			"WaitReady":     func() error { return n.WaitReady(ctx) },
			"TakeSnapshot":  func() error { _, err := n.TakeSnapshot(ctx); return err },
			"Close":         func() error { return n.Close(ctx) },
			"SubmitMany": func() error {
				_, err := n.SubmitMany([][]byte{[]byte("x")}, []uint64{1}, millrace.NewCompletions[uint64](1))
				return err
			},
		}
		tried := map[string]int{}
		m.call = func(where string) {
			for name, f := range methods {
				if err := f(); !errors.Is(err, millrace.ErrReentrant) {
					t.Errorf("%s in %s: %v", name, where, err)
				}
			}
			tried[where]++
		}
		if _, err := n.Propose(ctx, []byte("first")); err != nil {
			t.Fatal(err)
		}
		if _, err := n.TakeSnapshot(ctx); err != nil {
			t.Fatal(err)
		}
		if err := n.ViewExclusive(ctx, millrace.Linearizable, func() error { m.call("ViewExclusive"); return nil }); err != nil {
			t.Fatal(err)
		}
		if tried["Apply"] == 0 || tried["Snapshot"] == 0 || tried["ViewExclusive"] == 0 {
			t.Errorf("called in %v", tried)
		}
		if m := session.Next(); m.Low != m.Number {
			t.Errorf("refusals leave numbers open: %+v", m)
		}

		// Another goroutine, while the machine is in Apply.
		in, out := make(chan struct{}), make(chan *millrace.Pending[uint64])
		m.call = func(string) {
			m.call = func(string) {}
			in <- struct{}{}
			if p := <-out; p != nil {
				if _, _, err := p.Wait(ctx); !errors.Is(err, millrace.ErrReentrant) || !millrace.MayHaveCommitted(err) {
					t.Errorf("Wait in Apply: %v", err)
				}
			}
		}
		second, err := n.Submit([]byte("second"))
		if err != nil {
			t.Fatal(err)
		}
		<-in
		third, err := n.Submit([]byte("third"))
		if err != nil {
			t.Errorf("while the machine is in Apply: %v", err)
		}
		out <- third
		for _, p := range []*millrace.Pending[uint64]{second, third} {
			if _, _, err := p.Wait(ctx); err != nil {
				t.Error(err)
			}
		}
	}
}
