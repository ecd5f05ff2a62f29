package timers_test

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/millracetest"
	"github.com/millrace/millrace/timers"
)

// alarms is a machine with alarms that ring once. The empty command is the tick.
type alarms struct {
	queue timers.Queue[string]

	mu    *sync.Mutex
	rings map[string][]ring // by all members, of all their lives
	ticks map[uint64]bool   // indexes of ticks
	id    uint64
}

// ring is an alarm that a member has seen: due at, rung at.
type ring struct {
	member uint64
	at     time.Duration
}

type set struct {
	Name string
	In   time.Duration // 0: the tick
}

func (a *alarms) Apply(batch []millrace.Command[set], results []time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, c := range batch {
		for name := range a.queue.Expire(c.Time, 10) {
			a.rings[name] = append(a.rings[name], ring{a.id, c.Time})
		}
		if c.Value.In == 0 {
			a.ticks[c.Index] = true
			continue
		}
		results[i] = c.Time + c.Value.In
		a.queue.Set(c.Value.Name, results[i])
	}
	return nil
}

func (a *alarms) Snapshot() (millrace.Snapshot, error) {
	b, err := a.queue.MarshalBinary()
	return millrace.BytesSnapshot(b), err
}

func (a *alarms) Restore(_ context.Context, r io.Reader) error {
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	return a.queue.UnmarshalBinary(b)
}

// TestClock: in a cluster whose clients are silent, each alarm rings on every member, soon after its time and
// never before it, at the same log time on all. That needs one tick for each time at which something is due,
// also after the leader has changed, and in between there is none.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		rings, ticks := map[string][]ring{}, map[uint64]bool{}
		c := millracetest.New(t, 3, func(id uint64) millrace.Machine[set, time.Duration] {
			a := &alarms{mu: &mu, rings: rings, ticks: ticks, id: id}
			return millrace.InMemory(a, millrace.JSON[set]()).Timers(&a.queue, set{})
		})
		due, former := map[string]time.Duration{}, uint64(0)
		for i := range 6 {
			leader := c.Leader(t.Context())
			for _, in := range []time.Duration{2 * time.Second, 20 * time.Second} {
				name := fmt.Sprint(i, in)
				at, err := c.Node(leader).Propose(t.Context(), set{name, in})
				if err != nil {
					t.Fatal(err)
				}
				due[name] = at
			}
			synctest.Wait()
			<-time.After(3 * time.Second) // of the bubble: the clock waits for the later alarms then
			switch i % 3 {
			case 0, 1: // the next leader has the alarms of the last one, and then has led before
				to := leader%3 + 1
				if i%3 == 1 {
					to = former
				}
				if err := c.Node(leader).TransferLeadership(t.Context(), to); err != nil {
					t.Fatal(err)
				}
				former = leader
			case 2:
				c.Kill(leader)
				c.Restart(leader)
			}
		}
		<-time.After(25 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		for name, at := range due {
			rung := rings[name]
			members := map[uint64]bool{}
			for _, r := range rung {
				members[r.member] = true
				if r.at != rung[0].at || r.at < at || r.at > at+time.Second {
					t.Errorf("%s is due at %v; member %d has it at %v, and member %d at %v", name, at, r.member, r.at, rung[0].member, rung[0].at)
				}
			}
			if len(members) != 3 {
				t.Errorf("%s has rung on members %v", name, members)
			}
		}
		if len(ticks) < 6 || len(ticks) > 14 {
			t.Errorf("%d ticks for %d alarms, of which some are together: want one each", len(ticks), len(due))
		}
	})
}
