package millrace_test

import (
	"errors"
	"testing"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host/event"
)

// poisonValue is a command that no poisonedCounter can apply.
const poisonValue = 13

// poisonedCounter is a counter with a lock.
type poisonedCounter struct{ watched }

func (c *poisonedCounter) Apply(batch []millrace.Command[int64], results []int64) error {
	for i := range batch {
		if batch[i].Value == poisonValue {
			return errors.New("no such shelf")
		}
	}
	return c.watched.Apply(batch, results)
}

// The machine halts in the middle of a read and is made again from a snapshot: the read may have seen that
// older state, so it does not count. (Seen: View returned what it had read.)
func TestReadThatAHaltOvertakes(t *testing.T) {
	for name, consistency := range map[string]millrace.Consistency{"linearizable": millrace.Linearizable, "local": millrace.Local, "lease": millrace.Lease(0, 0.01)} {
		t.Run(name, func(t *testing.T) {
			c, resumed := alone(t), make(chan struct{}, 1)
			c.Leases = true
			c.OnEvent = func(e millrace.Event) {
				if _, is := e.(event.MachineResumed); is {
					resumed <- struct{}{}
				}
			}
			n := open(t, c, millrace.InMemory(&poisonedCounter{}, millrace.Binary[int64]()))
			lead(t, n)
			for range 2 {
				if _, err := n.Propose(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				if _, err := n.TakeSnapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := n.Read(t.Context(), millrace.Linearizable); err != nil { // brings a lease
				t.Fatal(err)
			}
			calls := 0
			if err := n.View(t.Context(), consistency, func(millrace.ReadAt) error {
				if calls++; calls > 1 {
					return nil
				}
				_, err := n.Propose(t.Context(), poisonValue)
				var halted *millrace.HaltedError
				if !errors.As(err, &halted) {
					t.Fatalf("a poison command: %v", err)
				}
				if err := n.SkipCommand(t.Context(), millrace.Position{Index: halted.First, Pos: halted.FirstPos}); err != nil {
					t.Fatal(err)
				}
				<-resumed
				_, err = n.Read(t.Context(), millrace.Linearizable) // brings a lease again
				return err
			}); err != nil || calls != 2 {
				t.Errorf("the read has called its function %d times, want 2; %v", calls, err)
			}
		})
	}
}
