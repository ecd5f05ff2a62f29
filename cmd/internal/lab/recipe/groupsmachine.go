package recipe

import (
	"sync"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host/statemachine"
)

// groupsMachine is the state machine of one group on one host. For each window it has a new load.Machine,
// which checks every value against the clients of that window. A count and a hash of all commands last its
// whole life: by them it is recognized after a restart.
type groupsMachine struct {
	mu     sync.Mutex
	all    groupTotal
	window *load.Machine // nil: no client writes
}

// groupTotal is a position in the life of a group: the number of commands, and a hash of their indexes and
// values.
type groupTotal struct {
	commands, hash uint64
}

// begin starts a window. All commands of the last one must have been applied.
func (m *groupsMachine) begin(s load.Share) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.window = &load.Machine{Share: s}
}

func (m *groupsMachine) total() groupTotal {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all
}

// Apply implements host.StateMachine.
func (m *groupsMachine) Apply(entries []statemachine.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range entries {
		e := &entries[i]
		if m.window != nil {
			m.window.ApplyAt(e.Index, e.Pos, e.Data)
		}
		if len(e.Data) < load.MinValueBytes {
			continue // the first entry of a leader
		}
		id := load.IDOf(e.Data)
		m.all.commands++
		for _, x := range [...]uint64{e.Index, uint64(id.Client), id.Seq} {
			h := (m.all.hash ^ x) * 0x9e3779b97f4a7c15 // 2^64 ÷ the golden ratio: spreads each bit upwards
			m.all.hash = h ^ h>>29
		}
	}
	return nil
}
