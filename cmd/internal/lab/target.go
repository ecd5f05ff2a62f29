package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/wal"
)

// Target is one replicated log under load.
type Target interface {
	// Propose replicates value and returns when it is acknowledged. An error means "not known to be replicated".
	// Ownership of value passes to the target. Thousands of goroutines may call it at once.
	Propose(ctx context.Context, value []byte) error
	// Counters returns totals since the target was opened, over all nodes.
	Counters() Counters
	// Verify is called once, after all clients have stopped. It waits until the nodes have converged and returns an
	// error that wraps ErrMismatch if they differ, or if an acknowledged write is missing or there twice.
	// CheckMachines does it for a target whose nodes apply to Machines.
	Verify(ctx context.Context, ledger *Ledger) error
	// Close stops all nodes. Proposals still waiting return an error. Files may be left for the harness to remove.
	Close() error
}

// Counters count the work of all nodes together.
type Counters struct {
	Fsyncs          uint64 // completed fsync or fdatasync calls on the log
	FsyncBytes      uint64 // bytes that these made durable
	Appends         uint64 // batches handed to the log
	AppendedEntries uint64
	Applies         uint64 // batches handed to the state machine
	AppliedEntries  uint64
}

// Sub returns c − earlier.
func (c Counters) Sub(earlier Counters) Counters {
	return Counters{
		Fsyncs: c.Fsyncs - earlier.Fsyncs, FsyncBytes: c.FsyncBytes - earlier.FsyncBytes,
		Appends: c.Appends - earlier.Appends, AppendedEntries: c.AppendedEntries - earlier.AppendedEntries,
		Applies: c.Applies - earlier.Applies, AppliedEntries: c.AppliedEntries - earlier.AppliedEntries,
	}
}

// Setup says what target to open.
type Setup struct {
	Pipeline   string // a name of the Registry
	Nodes      int
	Dir        string        // exists, is empty and belongs to the target until Close
	FsyncDelay time.Duration // sleep added to each fsync, after the real one
	// LeaderDelay is the same for the first node alone, which is the first to lead; bare has only the one above.
	LeaderDelay time.Duration
	Durability  wal.Mode // of the nodes' logs; bare always syncs
	ValueBytes  int      // size of each value that will be proposed
	InFlight    int      // most proposals that will be outstanding at once
	Brief       bool     // the run is short: do not spend seconds on preparing the disk
	Seed        uint64
}

// OpenFunc starts a target and returns when it is ready for proposals (a cluster: when it has a leader). It leaves
// nothing running if it fails.
type OpenFunc func(ctx context.Context, s Setup) (Target, error)

// Registry maps the name of a pipeline to what opens it.
type Registry map[string]OpenFunc

// BareName is the pipeline name of the yardstick: see bare.go.
const BareName = "bare"

// PipelineNames lists what --pipelines accepts, in the order of the table.
func PipelineNames() []string { return []string{"basic", "parallel", "async"} }

// open refuses by name what this build does not have.
func (r Registry) open(ctx context.Context, s Setup) (Target, error) {
	open := r[s.Pipeline]
	if open == nil {
		return nil, fmt.Errorf("pipeline %q is not available in this build", s.Pipeline)
	}
	return open(ctx, s)
}
