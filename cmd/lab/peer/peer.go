package peer

import (
	"context"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// What a program needs of the lab's load. Package load describes each.
type (
	// Target is a replicated log under load.
	Target = load.Target
	// Setup says which cluster to open.
	Setup = load.Setup
	// OpenFunc opens one.
	OpenFunc = load.OpenFunc
	// Counters are what a target has counted.
	Counters = load.Counters
	// Machine is the state machine of one host.
	Machine = load.Machine
	// Ledger has what was acknowledged.
	Ledger = load.Ledger
	// Stock holds files whose blocks are written, for logs that are not young.
	Stock = lab.Stock
	// ValueID names a value.
	ValueID = load.ValueID
)

// VerifyPoll is how often a target looks whether its hosts have applied the same.
const VerifyPoll = load.VerifyPoll

// ErrMismatch means that hosts do not hold what was acknowledged.
var ErrMismatch = lab.ErrMismatch

// IDOf returns the id in a value that a client of the load has made.
func IDOf(value []byte) ValueID { return load.IDOf(value) }

// ParseValue checks a value. ok is false if no client has made it.
func ParseValue(value []byte) (id ValueID, sum uint32, ok bool) { return load.ParseValue(value) }

// VerifyMachines waits until all machines have applied the same, and compares it with the ledger.
func VerifyMachines(ctx context.Context, machines []*Machine, ledger *Ledger) error {
	return load.VerifyMachines(ctx, machines, ledger)
}

// FillStock makes files of a size in a new directory below dir, which is on the filesystem that will use
// them.
func FillStock(ctx context.Context, dir string, files int, size int64) (*Stock, error) {
	return lab.FillStock(ctx, dir, files, size)
}

// FilesFor returns how many files of a size one log needs to take in n bytes.
func FilesFor(n, size int64) int { return lab.FilesFor(n, size) }

// PutAnswer takes back the channel of an answer that was received.
func PutAnswer(answer chan error) { load.PutAnswer(answer) }
