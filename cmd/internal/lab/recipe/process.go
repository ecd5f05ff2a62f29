package recipe

import (
	"bytes"
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/remote"
)

// The dissertation's client is a process of its own. ClientVerb is the hidden verb of this program with which
// it starts itself: it reads a clientJob, carries it out, and writes a clientReport and, after a load, what
// load.Receive reads.

// ClientVerb is the verb. A test program of this package answers it too.
const ClientVerb = "lab-client"

// clientJob is what the client has to do: a load, or one write.
type clientJob struct {
	Seeds      []string // addresses of hosts
	ValueBytes int
	Seed       uint64
	Sessions   bool // exactly once, also over connections that break

	Threads int // of the load; 0: one write, that of ID
	Warmup  load.Steadiness
	Length  time.Duration
	ID      load.ValueID
}

// clientReport is what the client says of itself.
type clientReport struct {
	Attempts, Repeats uint64
	CPU               time.Duration // a load: of the process, warm-up included
	Took              time.Duration // one write: from its call to its answer, so without the start of the process
	Answered          time.Time     // one write: when, by the clock of the machine
}

// ServeClient does one job. Its end of input is its owner's end.
func ServeClient(ctx context.Context, in io.Reader, out io.Writer) error {
	var job clientJob
	if err := json.NewDecoder(in).Decode(&job); err != nil {
		return fmt.Errorf("the job cannot be read: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel(errOwnerGone)
	}()
	if job.Threads < 0 || len(job.Seeds) == 0 || job.ValueBytes < load.MinValueBytes {
		return fmt.Errorf("a job with %d threads, %d hosts and values of %d bytes is none", job.Threads, len(job.Seeds), job.ValueBytes)
	}
	c := remote.NewClient(remote.ClientOptions{Seeds: job.Seeds, ConnectTimeout: b1Connect, Seed: job.Seed, Sessions: job.Sessions})
	defer c.Close()
	source := load.NewSource(job.ValueBytes, job.Seed)
	if job.Threads == 0 {
		return serveOneWrite(ctx, c, source.Value(job.ID), out)
	}
	ledger, before := &load.Ledger{}, load.ReadUsage()
	outcome, err := load.Window{
		Source: source, Steady: &job.Warmup, Length: job.Length, Generator: load.Closed{Clients: job.Threads},
		Observer: unobserved{}, Timeline: true, Ledger: ledger,
	}.Run(ctx, clientTarget{c})
	if err != nil {
		return err
	}
	if err := gob.NewEncoder(out).Encode(clientReport{Attempts: c.Attempts(), Repeats: c.Repeats(), CPU: load.ReadUsage().CPU - before.CPU}); err != nil {
		return err
	}
	return load.Send(out, outcome, ledger)
}

var errOwnerGone = errors.New("the program that has started this client is gone")

func serveOneWrite(ctx context.Context, c *remote.Client, value []byte, out io.Writer) error {
	began := time.Now()
	if err := c.Propose(ctx, value); err != nil {
		return err
	}
	answered := time.Now()
	return gob.NewEncoder(out).Encode(clientReport{Attempts: c.Attempts(), Repeats: c.Repeats(), Took: answered.Sub(began), Answered: answered.Round(0)})
}

type unobserved struct{}

func (unobserved) Phase(string)          {}
func (unobserved) Live(func() load.Live) {}

// clientTarget is a client as a load.Target. Its owner verifies: here is no host.
type clientTarget struct{ *remote.Client }

// Counters implements load.Target.
func (clientTarget) Counters() load.Counters { return load.Counters{} }

// Verify implements load.Target.
func (clientTarget) Verify(context.Context, *load.Ledger) error { return nil }

// Copies implements load.Copier: a value is in the buffer of the connection before Propose returns.
func (clientTarget) Copies() bool { return true }

var _ interface {
	load.Target
	load.Copier
} = clientTarget{}

// startClient starts the process with a job, waits for its end, and returns what it has written.
func startClient(ctx context.Context, job clientJob) (*bytes.Buffer, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	process := exec.CommandContext(ctx, program, ClientVerb)
	process.WaitDelay = time.Second
	var out, errs bytes.Buffer
	process.Stdout, process.Stderr = &out, &errs
	in, err := process.StdinPipe() // open until the process has ended, or this one is gone
	if err != nil {
		return nil, err
	}
	failed := process.Start()
	if failed == nil {
		_, _ = in.Write(text) // of a process that does not read Wait says more
		failed = process.Wait()
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if failed != nil {
		return nil, fmt.Errorf("the client's process ended with %w: %s", failed, strings.TrimSpace(errs.String()))
	}
	return &out, nil
}

// runClient makes a load in a process of its own, and returns what it has measured.
func runClient(ctx context.Context, job clientJob) (o load.Outcome, ledger *load.Ledger, r clientReport, err error) {
	out, err := startClient(ctx, job)
	if err != nil {
		return o, nil, r, err
	}
	// A bytes.Buffer reads single bytes, so gob takes no more than its own part.
	if err = gob.NewDecoder(out).Decode(&r); err == nil {
		o, ledger, err = load.Receive(out)
	}
	if err != nil {
		return o, nil, r, fmt.Errorf("the answer of the client's process cannot be read: %w", err)
	}
	return o, ledger, r, nil
}

// runOneWrite starts a process that makes one write. The report's times are of its call; took counts from
// before the process was started.
func runOneWrite(ctx context.Context, job clientJob) (r clientReport, took time.Duration, err error) {
	began := time.Now().Round(0)
	out, err := startClient(ctx, job)
	if err != nil {
		return r, 0, err
	}
	if err := gob.NewDecoder(out).Decode(&r); err != nil {
		return r, 0, fmt.Errorf("the answer of the client's process cannot be read: %w", err)
	}
	return r, r.Answered.Sub(began), nil
}
