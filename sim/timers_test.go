package sim_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/sim"
	"github.com/millrace/millrace/timers"
)

// leaseCommand sets, renews or cancels the lease of a key. The zero command is the tick.
type leaseCommand struct {
	Key    int
	TTL    time.Duration
	Cancel bool
}

// leaseResult says until when the key of a command is held, and which leases have expired before it.
type leaseResult struct {
	Now, Until time.Duration
	Fired      []int
}

// leaseMachine keeps leases twice: in a queue of timers, and in a map without a heap. Apply compares them.
type leaseMachine struct {
	queue timers.Queue[int]
	twin  map[int]time.Duration
	deaf  bool // a fault: it expires nothing
}

// maxExpired is how many leases one command lets expire: fewer than there are.
const maxExpired = 2

func newLeases() (*leaseMachine, millrace.Machine[leaseCommand, leaseResult]) {
	m := &leaseMachine{twin: map[int]time.Duration{}}
	return m, millrace.InMemory(m, millrace.JSON[leaseCommand]()).Timers(&m.queue, leaseCommand{})
}

func (m *leaseMachine) Apply(batch []millrace.Command[leaseCommand], results []leaseResult) error {
	for i := range batch {
		c, now := batch[i].Value, batch[i].Time
		r := leaseResult{Now: now}
		if !m.deaf {
			r.Fired = slices.Collect(m.queue.Expire(now, maxExpired))
			if want := m.expire(now); !slices.Equal(r.Fired, want) {
				return fmt.Errorf("at log time %v the leases %v expire, and should be %v", now, r.Fired, want)
			}
		}
		switch {
		case c.Cancel:
			_, held := m.twin[c.Key]
			if had := m.queue.Cancel(c.Key); had != held {
				return fmt.Errorf("lease %d is cancelled: %v, and should be: %v", c.Key, had, held)
			}
			delete(m.twin, c.Key)
		case c.TTL > 0:
			r.Until = now + c.TTL
			m.queue.Set(c.Key, r.Until)
			m.twin[c.Key] = r.Until
		}
		results[i] = r
	}
	return nil
}

// expire is Queue.Expire of the twin.
func (m *leaseMachine) expire(now time.Duration) (keys []int) {
	for len(keys) < maxExpired {
		best, ok := 0, false
		for k, until := range m.twin {
			if until <= now && (!ok || until < m.twin[best] || until == m.twin[best] && k < best) {
				best, ok = k, true
			}
		}
		if !ok {
			break
		}
		delete(m.twin, best)
		keys = append(keys, best)
	}
	return keys
}

type leaseState struct {
	Queue []byte
	Twin  map[int]time.Duration
}

func (m *leaseMachine) Snapshot() (millrace.Snapshot, error) {
	queue, err := m.queue.MarshalBinary()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(leaseState{queue, m.twin})
	return millrace.BytesSnapshot(b), err
}

func (m *leaseMachine) Restore(_ context.Context, r io.Reader) error {
	var s leaseState
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return err
	}
	if err := m.queue.UnmarshalBinary(s.Queue); err != nil {
		return err
	}
	if m.twin = s.Twin; m.twin == nil {
		m.twin = map[int]time.Duration{}
	}
	return nil
}

// leaseLoad is a workload of short leases. Those of a key are equally long.
func leaseLoad(machine func() millrace.Machine[leaseCommand, leaseResult]) sim.Workload[leaseCommand, leaseResult] {
	return sim.Workload[leaseCommand, leaseResult]{
		Machine: func(uint64) millrace.Machine[leaseCommand, leaseResult] { return machine() },
		Command: func(rng *rand.Rand) leaseCommand {
			key := rng.IntN(8)
			return leaseCommand{Key: key, TTL: time.Duration(1+40*key) * time.Millisecond, Cancel: rng.IntN(6) == 0}
		},
		Check: promised,
	}
}

// promised: no lease expires before the time that a holder was told. What is known of a lease may lack a
// command whose outcome is unknown, which only makes it longer: all leases of a key have one TTL.
func promised(history []sim.Operation[leaseCommand, leaseResult]) error {
	applied := slices.DeleteFunc(slices.Clone(history), func(op sim.Operation[leaseCommand, leaseResult]) bool { return op.Outcome != sim.Applied })
	slices.SortFunc(applied, func(a, b sim.Operation[leaseCommand, leaseResult]) int {
		if a.Index != b.Index {
			return int(int64(a.Index) - int64(b.Index))
		}
		return int(a.Pos) - int(b.Pos)
	})
	until := map[int]time.Duration{}
	for _, op := range applied {
		for _, key := range op.Output.Fired {
			if op.Output.Now < until[key] {
				return fmt.Errorf("%+v lets lease %d expire, which is held until %v", op, key, until[key])
			}
		}
		if until[op.Input.Key] = op.Output.Until; op.Input.TTL == 0 {
			delete(until, op.Input.Key)
		}
	}
	return nil
}

// TestTimers runs a machine with timers, which compares itself with its twin, under all faults.
func TestTimers(t *testing.T) {
	ticks, fired := 0, 0
	failed := eachFailure(t, seedsFor(*machines), leaseLoad(func() millrace.Machine[leaseCommand, leaseResult] { _, m := newLeases(); return m }), func(_ sim.Report, history []sim.Operation[leaseCommand, leaseResult]) {
		for _, op := range history {
			if op.Input == (leaseCommand{}) {
				ticks++
			}
			fired += len(op.Output.Fired)
		}
	})
	for _, err := range failed {
		t.Error(err)
	}
	t.Logf("%d ticks, %d expiries that a client or a clock has seen", ticks, fired)
	if ticks < 50 || fired < 100 {
		t.Error("too little has happened")
	}
}

// TestTimersThatStayAreFound: a machine that forgets to expire its timers is found when the faults have
// stopped. One that forgets them in a snapshot is found by its twin, or at the end.
func TestTimersThatStayAreFound(t *testing.T) {
	deaf := leaseLoad(func() millrace.Machine[leaseCommand, leaseResult] {
		l, m := newLeases()
		l.deaf = true
		return m
	})
	_, _, err := sim.RunMachine(sim.Options{Seed: 1}, deaf)
	if err == nil || !strings.Contains(err.Error(), "Apply must expire timers") {
		t.Errorf("a machine that expires nothing: %v", err)
	}
}
