// Package peer is the process that measures a replicated log under a load, for `millrace bench peers`:
// ours, bare, and other projects' libraries (tests/compare/others/peers). A library brings an OpenFunc; the
// clients, their clock and the checks are those of the lab's package load, linked into each child. Children
// in other languages read the same request and write the same answer.
//
// It is exported because those programs lie outside module cmd. It promises nothing to other repositories: it
// changes with the lab.
package peer

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Request asks a child for one point.
type Request struct {
	// Dir exists and is empty.
	Dir        string        `json:"dir"`
	Hosts      int           `json:"hosts"`
	Clients    int           `json:"clients"` // each with one write outstanding
	ValueBytes int           `json:"value_bytes"`
	Warmup     time.Duration `json:"warmup_ns"`
	Length     time.Duration `json:"length_ns"`
	Seed       uint64        `json:"seed"`
	// WrittenBytes is how much of each host's log is in written blocks when the load begins, if the system
	// can be brought there. 0: its log is young.
	WrittenBytes int64 `json:"written_bytes"`
}

// Serve is the main function of a child: it answers the one request on in.
func Serve(in io.Reader, out io.Writer, name string, open load.OpenFunc) error {
	return lab.ServeChild(in, out, func(r Request) (report.Result, error) {
		return measure(r, name, open, load.Closed{Clients: r.Clients})
	})
}

// ServeBatches is Serve with one goroutine that keeps as many writes under way as there would be clients. The
// target is a load.Batcher.
func ServeBatches(in io.Reader, out io.Writer, name string, open load.OpenFunc) error {
	return lab.ServeChild(in, out, func(r Request) (report.Result, error) {
		return measure(r, name, open, load.Batched{Outstanding: r.Clients})
	})
}

func measure(r Request, name string, open load.OpenFunc, g load.Generator) (report.Result, error) {
	if r.Hosts < 1 || r.Clients < 1 || r.ValueBytes < load.MinValueBytes || r.Length <= 0 {
		return report.Result{}, fmt.Errorf("a request for %d hosts, %d clients, values of %d bytes and %v makes no sense", r.Hosts, r.Clients, r.ValueBytes, r.Length)
	}
	defer load.AddProcessors(r.Hosts)()
	trial := load.Trial{
		Open: open, Warmup: r.Warmup, Length: r.Length, Generator: g, Observer: report.Silence{},
		Setup: load.Setup{Pipeline: name, Hosts: r.Hosts, Dir: r.Dir, ValueBytes: r.ValueBytes, InFlight: r.Clients, Brief: true, WrittenBytes: r.WrittenBytes, Seed: r.Seed},
	}
	outcome, err := trial.Run(context.Background())
	if err != nil {
		return report.Result{}, err
	}
	if outcome.Completed == 0 {
		return report.Result{}, fmt.Errorf("no write was acknowledged within %v, and %d failed", r.Length, outcome.Failed)
	}
	result := report.Result{Pipeline: name, Hosts: r.Hosts, Clients: r.Clients, ValueBytes: r.ValueBytes, Seed: r.Seed}
	result.SetOutcome(outcome)
	return result, nil
}
