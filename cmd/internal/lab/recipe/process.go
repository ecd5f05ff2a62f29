package recipe

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/client"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// The dissertation's client is a process of its own. ClientVerb is the hidden verb of this program with which
// it starts itself: it reads a clientJob, runs the load, and writes what load.Receive reads.

// ClientVerb is the verb. A test program of this package answers it too.
const ClientVerb = "lab-client"

// clientJob is what the client has to do.
type clientJob struct {
	Seeds      []string // addresses of hosts
	Threads    int
	ValueBytes int
	Warmup     load.Steadiness
	Length     time.Duration
	Seed       uint64
}

// ServeClient does one job. Its end of input is its owner's end.
func ServeClient(ctx context.Context, in io.Reader, out io.Writer) error {
	var job clientJob
	if err := json.NewDecoder(in).Decode(&job); err != nil {
		return fmt.Errorf("the job cannot be read: %w", err)
	}
	if job.Threads < 1 || len(job.Seeds) == 0 || job.ValueBytes < load.MinValueBytes {
		return fmt.Errorf("a job with %d threads, %d hosts and values of %d bytes is none", job.Threads, len(job.Seeds), job.ValueBytes)
	}
	c := client.New(client.Options{Seeds: job.Seeds, ConnectTimeout: b1Connect, Seed: job.Seed})
	defer c.Close()
	ledger := &load.Ledger{}
	outcome, err := load.Window{
		Source: load.NewSource(job.ValueBytes, job.Seed), Steady: &job.Warmup, Length: job.Length, Generator: load.Closed{Clients: job.Threads},
		Observer: unobserved{}, Timeline: true, Ledger: ledger,
	}.Run(ctx, remote{c})
	if err != nil {
		return err
	}
	return load.Send(out, outcome, ledger)
}

type unobserved struct{}

func (unobserved) Phase(string)          {}
func (unobserved) Live(func() load.Live) {}

// remote is a client as a load.Target. Its owner verifies: here is no host.
type remote struct{ *client.Client }

// Counters implements load.Target.
func (remote) Counters() load.Counters { return load.Counters{} }

// Verify implements load.Target.
func (remote) Verify(context.Context, *load.Ledger) error { return nil }

// Copies implements load.Copier: a value is in the buffer of the connection before Propose returns.
func (remote) Copies() bool { return true }

var _ interface {
	load.Target
	load.Copier
} = remote{}

// runClient starts the process, and returns what it has measured.
func runClient(ctx context.Context, job clientJob) (o load.Outcome, ledger *load.Ledger, err error) {
	program, err := os.Executable()
	if err != nil {
		return o, nil, err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return o, nil, err
	}
	process := exec.CommandContext(ctx, program, ClientVerb)
	process.WaitDelay = time.Second
	var out, errs bytes.Buffer
	process.Stdin, process.Stdout, process.Stderr = bytes.NewReader(text), &out, &errs
	failed := process.Run()
	if ctx.Err() != nil {
		return o, nil, context.Cause(ctx)
	}
	if failed != nil {
		return o, nil, fmt.Errorf("the client's process ended with %w: %s", failed, strings.TrimSpace(errs.String()))
	}
	o, ledger, err = load.Receive(&out)
	if err != nil {
		return o, nil, fmt.Errorf("the answer of the client's process cannot be read: %w", err)
	}
	return o, ledger, nil
}
