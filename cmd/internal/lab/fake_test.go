package lab

import (
	"context"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeTarget is a cluster in a mutex: each proposal goes to all machines at once. The hooks plant faults.
type fakeTarget struct {
	mu       sync.Mutex
	machines []*Machine
	index    uint64
	entries  uint64
	closed   bool

	stall   func()                                // runs before each proposal
	refuse  error                                 // answer to every proposal
	deliver func(node int, n uint64) (times int)  // how often a node applies the n-th value
	damage  func(node int, n uint64, data []byte) // changes what a node applies
}

func newFakeTarget(nodes int) *fakeTarget {
	t := &fakeTarget{}
	for range nodes {
		t.machines = append(t.machines, &Machine{})
	}
	return t
}

func (t *fakeTarget) open(context.Context, Setup) (Target, error) { return t, nil }

func (t *fakeTarget) Propose(ctx context.Context, value []byte) error {
	if t.stall != nil {
		t.stall()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.refuse != nil {
		return t.refuse
	}
	n := t.entries
	t.entries++
	for node, m := range t.machines {
		times, data := 1, value
		if t.deliver != nil {
			times = t.deliver(node, n)
		}
		if t.damage != nil {
			data = append([]byte(nil), value...)
			t.damage(node, n, data)
		}
		for i := range times {
			m.Apply(t.index+uint64(i)+1, data)
		}
	}
	t.index += 10
	return ctx.Err()
}

func (t *fakeTarget) Counters() Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.entries * uint64(len(t.machines))
	return Counters{Fsyncs: n, FsyncBytes: 2048 * n, Appends: n, AppendedEntries: 3 * n, Applies: n, AppliedEntries: 4 * n}
}

func (t *fakeTarget) Verify(ctx context.Context, l *Ledger) error {
	return CheckMachines(ctx, t.machines, l)
}

func (t *fakeTarget) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return nil
}
