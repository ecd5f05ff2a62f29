// Package node measures what the typed API costs: writes through package millrace beside the same writes
// through the API of package host, which knows bytes only; forwarded writes; and reads.
//
// One cluster has two groups on the same hosts and logs, one of each API. For each number of clients the ways
// take turns, window by window, in each run in another order: throughput on a shared disk changes by a third
// within minutes, and depends on what the disk did just before. Only windows that lie side by side, and come
// after this as often as after that, give an honest ratio. After each window of writes every state machine is
// compared with what the clients know.
package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Plan is what to measure. Zero values are not filled in; the command line has the defaults.
type Plan struct {
	Clients    []int // numbers of clients, each with one operation outstanding
	Ways       []Way // in the order of the table; the first is what the others are compared with
	ValueBytes int
	Hosts      int
	Duration   time.Duration // of a window
	Warmup     time.Duration // before each window
	Runs       int           // windows of each way at each number of clients
	Dir        string
	Seed       uint64
}

// Validate returns the first reason why the plan cannot be carried out. It is a *lab.FieldError that wraps
// lab.ErrInvalid.
func (p Plan) Validate() error {
	switch {
	case len(p.Clients) == 0:
		return lab.Invalid("Clients", "give at least one number")
	case len(p.Ways) == 0:
		return lab.Invalid("Ways", "give at least one of %v", AllWays)
	}
	for _, n := range p.Clients {
		switch {
		case n < 1 || n > lab.MaxClients:
			return lab.Invalid("Clients", "%d is not between 1 and %d", n, lab.MaxClients)
		case int64(p.ValueBytes)*int64(n) > maxInFlightBytes:
			return lab.Invalid("ValueBytes", "%d clients with %d bytes each are more than %d MiB in flight", n, p.ValueBytes, maxInFlightBytes>>20)
		}
	}
	switch {
	case p.ValueBytes < load.MinValueBytes || p.ValueBytes > load.MaxValueBytes:
		return lab.Invalid("ValueBytes", "%d is not between %d and %d", p.ValueBytes, load.MinValueBytes, load.MaxValueBytes)
	case p.Hosts < 1 || p.Hosts > lab.MaxHosts:
		return lab.Invalid("Hosts", "%d is not between 1 and %d", p.Hosts, lab.MaxHosts)
	}
	for _, w := range p.Ways {
		if w.follows() && p.Hosts < 2 {
			return lab.Invalid("Ways", "%s needs a follower, and there is one host only", w)
		}
	}
	return lab.ValidateWindows(p.Duration, p.Warmup, p.Runs)
}

// maxInFlightBytes is far below half of the share of host.Config.MemoryBytes for proposals.
const maxInFlightBytes = 32 << 20

// bytesPerSecond is about how fast the log of one host grows under load on a good disk.
const bytesPerSecond = 128 << 20

func (p Plan) needBytes() uint64 {
	windows := len(p.Clients) * len(p.Ways) * p.Runs
	return bench.NeedBytes(p.Hosts, uint64(bytesPerSecond*(time.Duration(windows)*(p.Warmup+p.Duration)).Seconds()))
}

// Run carries the plan out. If ctx ends, the report has the rows that are finished, and is marked partial.
func Run(ctx context.Context, p Plan, progress report.Progress) (_ *Report, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	defer load.AddProcessors(p.Hosts)()
	of := &Report{Plan: p}
	of.Partial, err = lab.InWorkDir(ctx, p.Dir, p.needBytes(), func(ctx context.Context, work lab.WorkDir) error {
		of.Env = lab.ReadEnvironment(work.Parent)
		progress.Begin(len(p.Clients) * len(p.Ways))
		defer progress.End()
		for i, n := range p.Clients {
			rows, err := lab.InFreshDir(work, func(dir string) ([]Result, error) { return p.measure(ctx, i, n, dir, progress) })
			of.Rows = append(of.Rows, rows...)
			if err != nil {
				return fmt.Errorf("%s: %w", report.Plural(n, "client"), err)
			}
		}
		return nil
	})
	if err != nil && !of.Partial {
		return nil, err
	}
	for i := range of.Rows {
		of.Rows[i].Schema, of.Rows[i].Env, of.Rows[i].Partial = Schema, of.Env, of.Partial
	}
	return of, err
}

// measure makes the rows of one number of clients, on a new cluster.
func (p Plan) measure(ctx context.Context, i, clients int, dir string, progress report.Progress) (rows []Result, err error) {
	progress.Phase("start")
	c, err := openCluster(ctx, p.Hosts, dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, bench.CloseHosts(c.hosts)) }()
	runs := make([][]Result, len(p.Ways))
	random := rand.New(rand.NewPCG(p.Seed, uint64(clients)))
	for run := range p.Runs {
		for _, k := range random.Perm(len(p.Ways)) { // no way always comes after the same other
			way := p.Ways[k]
			progress.Point(i*len(p.Ways)+k, fmt.Sprintf("%s, %s", way, report.Plural(clients, "client")), p.Warmup+p.Duration)
			r, err := p.window(ctx, c, way, clients, progress)
			if err != nil {
				return nil, fmt.Errorf("%s, run %d of %d: %w", way, run+1, p.Runs, err)
			}
			runs[k] = append(runs[k], r)
			if run == p.Runs-1 {
				progress.PointDone(report.Median(bare(runs[k])))
			}
		}
	}
	return compare(runs), nil
}

func bare(rows []Result) (of []report.Result) {
	for i := range rows {
		of = append(of, rows[i].Result)
	}
	return of
}
