// A Target is a load.Target without a disk, a network or a leader, on which tests can plant faults.

package labtest

import (
	"context"
	"sync"

	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// Target is a cluster in a mutex: each proposal goes to all machines at once. The fields that are functions
// plant faults; set them before the first proposal.
type Target struct {
	mu       sync.Mutex
	machines []*load.Machine
	index    uint64
	entries  uint64
	closed   bool

	Stall   func()                                // runs before each proposal
	Refuse  error                                 // answer to every proposal
	Deliver func(host int, n uint64) (times int)  // how often a host applies the n-th value
	Damage  func(host int, n uint64, data []byte) // changes what a host applies
}

// NewTarget returns a target of some hosts without a fault.
func NewTarget(hosts int) *Target {
	t := &Target{}
	for range hosts {
		t.machines = append(t.machines, &load.Machine{})
	}
	return t
}

// Open is a load.OpenFunc that returns t.
func (t *Target) Open(context.Context, load.Setup) (load.Target, error) { return t, nil }

// Propose implements load.Target.
func (t *Target) Propose(ctx context.Context, value []byte) error {
	if t.Stall != nil {
		t.Stall()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.Refuse != nil {
		return t.Refuse
	}
	n := t.entries
	t.entries++
	for host, m := range t.machines {
		times, data := 1, value
		if t.Deliver != nil {
			times = t.Deliver(host, n)
		}
		if t.Damage != nil {
			data = append([]byte(nil), value...)
			t.Damage(host, n, data)
		}
		for i := range times {
			m.Apply(t.index+uint64(i)+1, data)
		}
	}
	t.index += 10
	return ctx.Err()
}

// Counters implements load.Target: one fsync of 2048 bytes, a batch of 3 to append and one of 4 to apply for
// each value and host.
func (t *Target) Counters() load.Counters {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.entries * uint64(len(t.machines))
	return load.Counters{Fsyncs: n, FsyncBytes: 2048 * n, Appends: n, AppendedEntries: 3 * n, Applies: n, AppliedEntries: 4 * n}
}

// Verify implements load.Target.
func (t *Target) Verify(ctx context.Context, l *load.Ledger) error {
	return load.VerifyMachines(ctx, t.machines, l)
}

// Close implements load.Target.
func (t *Target) Close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	return nil
}

// Closed reports whether Close was called.
func (t *Target) Closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}
