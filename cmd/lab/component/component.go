// Package component is what a program needs of the lab to do its jobs with logs, engines and transports of
// other projects. `millrace lab measure` and `lab sweep` start such a program when a flag names one of those.
// Package componenttest has the tests that components pass. It promises nothing to other repositories: it
// changes with the lab.
package component

import (
	"context"
	"io"
	"os"

	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// Names of components, as flags have them.
const (
	EtcdLog      = experiment.EtcdLog
	PebbleLog    = experiment.PebbleLog
	PebbleEngine = experiment.PebbleEngine
	GRPC         = experiment.GRPC
)

// MinValueBytes is the size of the smallest value.
const MinValueBytes = load.MinValueBytes

type (
	// Components are what a program has, by name.
	Components = rig.Foreign
	// OpenLog opens the log of a host.
	OpenLog = rig.OpenLog
	// Disk is what a log that has files of its own calls.
	Disk = rig.Disk
	// OpenEngine opens an engine in a new directory.
	OpenEngine = rig.OpenEngine
	// Engine is where the state machine of a group keeps its values.
	Engine = rig.Engine
	// Listen opens the transport of a host.
	Listen = rig.Listen
	// Transport is a transport with an address book.
	Transport = rig.Peered
	// ValueID names a value.
	ValueID = load.ValueID
)

// IDOf returns the id in a value.
func IDOf(value []byte) ValueID { return load.IDOf(value) }

// Serve is the main function of the program: it does the one job that in has.
func Serve(ctx context.Context, in io.Reader, out io.Writer, progress *os.File, components Components) error {
	return experiment.Serve(ctx, in, out, progress, components)
}
