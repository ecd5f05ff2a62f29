// Package load puts one replicated log under load, measures it, and checks what it acknowledged. Package lab
// describes the method; the reading order is target.go, value.go, machine.go, ledger.go, load.go,
// openloop.go, histogram.go, trial.go.
package load

import (
	"context"
	"sync"
	"time"

	"github.com/millrace/millrace/wal"
)

// Target is one replicated log under load.
type Target interface {
	// Propose replicates value and returns when it is acknowledged. An error means "not known to be
	// replicated". Ownership of value passes to the target. Thousands of goroutines may call it at once.
	Propose(ctx context.Context, value []byte) error
	// Counters returns totals since the target was opened, over all hosts.
	Counters() Counters
	// Verify is called once, after all clients have stopped. It waits until the hosts have converged. It
	// returns an error that wraps lab.ErrMismatch if they differ, or if an acknowledged write is missing or
	// was applied twice. VerifyMachines does it for a target whose hosts apply to Machines.
	Verify(ctx context.Context, ledger *Ledger) error
	// Close stops all hosts. Proposals that still wait return an error. The harness removes the files.
	Close() error
}

// Copier is a Target that copies each value during Propose. So a client can use one buffer for all of its
// values.
type Copier interface {
	Target
	// Copies reports whether it does.
	Copies() bool
}

// Abroad is a Target whose hosts run in processes of their own, so that ReadUsage does not count what they
// use.
type Abroad interface {
	Target
	// HostsUsage returns what the processes of all hosts had used when Counters was called last.
	HostsUsage() Usage
}

// Counters count the work of all hosts together.
type Counters struct {
	Fsyncs          uint64 // completed fsync or fdatasync calls on the log
	FsyncBytes      uint64 // bytes that these made durable
	Appends         uint64 // batches handed to the log
	AppendedEntries uint64
	Applies         uint64 // batches handed to the state machine
	AppliedEntries  uint64
	LogBytes        uint64 // of the records of all appends, with their headers; 0 if the target does not count them
	SentBytes       uint64 // to other hosts; 0 likewise
	Frames          uint64 // of them; 0 likewise
	Turns           uint64 // of all groups; 0 likewise
	YoungSegments   uint64 // of the logs, that got records before all their blocks were written
}

// Sub returns c − earlier.
func (c Counters) Sub(earlier Counters) Counters {
	return Counters{
		Fsyncs: c.Fsyncs - earlier.Fsyncs, FsyncBytes: c.FsyncBytes - earlier.FsyncBytes,
		Appends: c.Appends - earlier.Appends, AppendedEntries: c.AppendedEntries - earlier.AppendedEntries,
		Applies: c.Applies - earlier.Applies, AppliedEntries: c.AppliedEntries - earlier.AppliedEntries,
		LogBytes: c.LogBytes - earlier.LogBytes, SentBytes: c.SentBytes - earlier.SentBytes, Frames: c.Frames - earlier.Frames, Turns: c.Turns - earlier.Turns,
		YoungSegments: c.YoungSegments - earlier.YoungSegments,
	}
}

// Add returns c + more.
func (c Counters) Add(more Counters) Counters { return c.Sub(Counters{}.Sub(more)) }

// Setup says what target to open.
type Setup struct {
	Pipeline    string // a name of the registry that holds the OpenFunc
	Hosts       int
	Dir         string        // exists, is empty and belongs to the target until Close
	FsyncDelay  time.Duration // sleep added to each fsync, after the real one
	LeaderDelay time.Duration // the same for the first host alone, which is the first to lead; bare ignores it
	Durability  wal.Mode      // of the hosts' logs; bare always syncs
	ValueBytes  int           // size of each value that will be proposed
	Groups      int           // over which the clients are spread, for a target with several
	InFlight    int           // bound on the proposals that will be outstanding at once
	Brief       bool          // the run is short: do not spend seconds on preparing the disk
	// WrittenBytes is how much of each host's log is in blocks that are written before the load begins, as
	// it is in a log of some age. If it is 0 the log is young, and begins with what it makes itself. This is
	// not for bare, which always writes into written blocks.
	WrittenBytes int64
	Seed         uint64
}

// OpenFunc starts a target and returns when it is ready for proposals (a cluster: when it has a leader). If
// it fails, it leaves nothing running.
type OpenFunc func(ctx context.Context, s Setup) (Target, error)

// answers holds the channels on which targets answer their clients. Reuse keeps the allocations of a client
// that waits out of the figures.
var answers = sync.Pool{New: func() any { return make(chan error, 1) }}

// GetAnswer returns an empty channel on which a target answers one proposal.
func GetAnswer() chan error { return answers.Get().(chan error) }

// PutAnswer takes a channel back whose answer was read.
func PutAnswer(answer chan error) { answers.Put(answer) }
