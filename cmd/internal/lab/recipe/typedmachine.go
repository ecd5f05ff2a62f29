package recipe

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host/statemachine"
)

// countingMachine is the state machine of a group on one host. For each window of writes it has a new
// load.Machine, which checks every value against the clients of that window.
type countingMachine struct {
	mu     sync.RWMutex
	window *load.Machine
	count  uint64 // commands
}

// begin starts a window. All commands of the last one must have been applied.
func (m *countingMachine) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.window = &load.Machine{}
}

// bytesMachine is a machine of the API of package host.
type bytesMachine struct{ *countingMachine }

// Apply implements host.StateMachine.
func (m bytesMachine) Apply(entries []statemachine.Entry) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range entries {
		m.window.ApplyAt(entries[i].Index, entries[i].Pos, entries[i].Data)
	}
	m.count += uint64(len(entries))
	return nil
}

// typedMachine is a machine of the typed API. The result of a command is how many came before it.
type typedMachine struct{ *countingMachine }

// Apply implements millrace.StateMachine.
func (m typedMachine) Apply(batch []millrace.Command[[]byte], results []uint64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range batch {
		m.window.ApplyAt(batch[i].Index, batch[i].Pos, batch[i].Value)
		results[i] = m.count
		m.count++
	}
	return nil
}

// Snapshot implements millrace.StateMachine. A bench ends before a snapshot.
func (typedMachine) Snapshot() (millrace.Snapshot, error) { return nil, errors.ErrUnsupported }

// Restore implements millrace.StateMachine.
func (typedMachine) Restore(context.Context, io.Reader) error { return errors.ErrUnsupported }

// read is what the clients of reads do with the state.
func (m *countingMachine) read() uint64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.count
}
