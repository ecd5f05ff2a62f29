// Package groups measures what many groups on the same hosts cost: the time to found them and to open them
// again, the memory and the idle processor time of each, and the throughput of clients that write to all of
// them, beside the same clients on one group of the same hosts.
//
// The hosts are real, in one process, with their logs on the disk and TCP on 127.0.0.1. For each number of
// groups a new cluster passes through these steps:
//
//	found     hosts on new directories; one group, then the others, until every host knows every leader
//	rest      until the logs write nothing any more
//	idle      processor time of the process, which does nothing else
//	memory    heap and stacks after garbage collections, with all groups and with one
//	reopen    close everything, open it again, until every host knows every leader
//	load      windows on one group and on all groups in turn; after each, what was acknowledged is checked
//	replay    close everything, open it again: each state machine must be as it was
//
// Rejected: to measure one group on a cluster of its own. Throughput on a shared disk changes by a third
// within minutes, so only windows that lie side by side, on the same hosts and logs, give an honest ratio.
package groups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Plan is what to measure. Zero values are not filled in; the command line has the defaults.
type Plan struct {
	Groups     []int // numbers of groups, one row for each
	Clients    int   // with one write outstanding each, spread over the groups
	ValueBytes int
	Hosts      int
	Heartbeat  time.Duration // host.Config.HeartbeatInterval; elections take ten times as long and more
	Idle       time.Duration // how long idle processor time is measured
	Duration   time.Duration // of a window under load
	Warmup     time.Duration // before each window
	Runs       int           // pairs of windows: one group, all groups
	Dir        string
	Seed       uint64
}

// Bounds of a plan, beside those of package lab.
const (
	maxGroups        = 100_000 // the default of host.Config.MaxGroups
	maxInFlightBytes = 128 << 20
	maxIdle          = time.Hour
	minHeartbeat     = time.Millisecond // as host.Config.HeartbeatInterval
	maxHeartbeat     = time.Minute
)

// Validate returns the first reason why the plan cannot be carried out. It is a *lab.FieldError that wraps
// lab.ErrInvalid.
func (p Plan) Validate() error {
	if len(p.Groups) == 0 {
		return lab.Invalid("Groups", "give at least one number")
	}
	for _, n := range p.Groups {
		if n < 1 || n > maxGroups {
			return lab.Invalid("Groups", "%d is not between 1 and %d", n, maxGroups)
		}
	}
	switch {
	case p.Clients < 1 || p.Clients > lab.MaxClients:
		return lab.Invalid("Clients", "%d is not between 1 and %d", p.Clients, lab.MaxClients)
	case p.ValueBytes < load.MinValueBytes || p.ValueBytes > load.MaxValueBytes:
		return lab.Invalid("ValueBytes", "%d is not between %d and %d", p.ValueBytes, load.MinValueBytes, load.MaxValueBytes)
	case int64(p.ValueBytes)*int64(p.Clients) > maxInFlightBytes:
		return lab.Invalid("ValueBytes", "%d clients with %d bytes each are more than %d MiB in flight", p.Clients, p.ValueBytes, maxInFlightBytes>>20)
	case p.Hosts < 1 || p.Hosts > lab.MaxHosts:
		return lab.Invalid("Hosts", "%d is not between 1 and %d", p.Hosts, lab.MaxHosts)
	case p.Heartbeat < minHeartbeat || p.Heartbeat > maxHeartbeat:
		return lab.Invalid("Heartbeat", "%v is not between %v and %v", p.Heartbeat, minHeartbeat, maxHeartbeat)
	case p.Idle <= 0 || p.Idle > maxIdle:
		return lab.Invalid("Idle", "%v is not between 1ns and %v", p.Idle, maxIdle)
	}
	return lab.ValidateWindows(p.Duration, p.Warmup, p.Runs)
}

// windows returns how many windows under load a row has. One group needs no comparison.
func (p Plan) windows(groups int) int {
	if groups == 1 {
		return p.Runs
	}
	return 2 * p.Runs
}

// length returns how long a row takes at least.
func (p Plan) length(groups int) time.Duration {
	return p.Idle + time.Duration(p.windows(groups))*(p.Warmup+p.Duration)
}

// bytesPerSecond is about how fast the log of one host grows under load on a good disk.
const bytesPerSecond = 64 << 20

// needBytes returns the free space that the longest row may take.
func (p Plan) needBytes() uint64 {
	windows := p.windows(slices.Max(p.Groups))
	underLoad := time.Duration(windows) * (p.Warmup + p.Duration)
	return bench.NeedBytes(p.Hosts, uint64(bytesPerSecond*underLoad.Seconds()))
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
		progress.Begin(len(p.Groups))
		defer progress.End()
		for i, n := range p.Groups {
			progress.Point(i, report.Plural(n, "group"), p.length(n))
			row, err := lab.InFreshDir(work, func(dir string) (Result, error) { return p.measure(ctx, n, dir, progress) })
			if err != nil {
				return fmt.Errorf("%s: %w", report.Plural(n, "group"), err)
			}
			of.Rows = append(of.Rows, row)
			progress.PointDone(row.Result)
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

// measure makes one row: the steps of the package, in order.
func (p Plan) measure(ctx context.Context, n int, dir string, progress report.Progress) (_ Result, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	c := newCluster(p, n, dir, stop)
	defer func() {
		err = explain(ctx, err)
		stop(nil)
		err = errors.Join(err, c.close())
	}()

	row := Result{Groups: n}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"found", func() error { return p.found(ctx, c, &row) }},
		{"idle", func() error { return p.idle(ctx, c, &row) }},
		{"reopen", func() error { return reopen(ctx, c, &row) }},
		{"load", func() error { return p.load(ctx, c, &row, progress) }},
		{"replay", func() error { return replay(ctx, c, &row) }},
	} {
		progress.Phase(step.name)
		if err := step.do(); err != nil {
			return row, fmt.Errorf("%s: %w", step.name, err)
		}
		if err := context.Cause(ctx); err != nil {
			return row, fmt.Errorf("%s: %w", step.name, err)
		}
	}
	return row, nil
}

// explain returns the reason why a run has ended with err. A group that stops ends everything else, so its
// sentence says more than what follows from it.
func explain(ctx context.Context, err error) error {
	var stopped *stoppedError
	if cause := context.Cause(ctx); err != nil && errors.As(cause, &stopped) {
		return cause
	}
	return err
}

// found founds one group and then the others, and measures the time of both, and the memory in use between
// them: what the first group needs once for a host, such as connections and buffers, does not count as the
// memory of the others.
func (p Plan) found(ctx context.Context, c *cluster, row *Result) error {
	first, err := timed(func() error { return c.start(ctx, 1) })
	if err != nil {
		return err
	}
	if _, err := c.awaitRest(ctx, p.quiet()); err != nil {
		return err
	}
	c.baseline, c.baselineLog = memoryInUse(), c.logMemory()
	others, err := timed(func() error { return c.openGroups(ctx, 1, c.n) })
	if err != nil {
		return err
	}
	row.FoundSec = (first + others).Seconds()
	rests, err := c.awaitRest(ctx, p.quiet())
	if err != nil {
		return err
	}
	row.Restless = !rests
	return nil
}

// quiet is for how long the logs must write nothing before the hosts count as at rest.
func (p Plan) quiet() time.Duration { return min(p.Idle, time.Second) }

// idle measures the processor time of the process while no client writes, and then the memory of all groups
// but the first. Groups release memory while they are idle.
func (p Plan) idle(ctx context.Context, c *cluster, row *Result) error {
	cpu := load.ProcessCPU()
	took, err := timed(func() error { return lab.Sleep(ctx, p.Idle) })
	row.IdlePercent = 100 * report.Ratio((load.ProcessCPU()-cpu).Seconds(), took.Seconds())
	if members := float64(c.n-1) * float64(p.Hosts); members > 0 {
		inLogs := c.logMemory() - c.baselineLog
		row.LogMemoryBytes = float64(inLogs) / members
		row.MemoryBytes = float64(memoryInUse()-c.baseline-inLogs) / members
	}
	return err
}

// reopen closes all hosts and opens them again, with logs that hold the founding only.
func reopen(ctx context.Context, c *cluster, row *Result) error {
	took, err := timed(c.close)
	if err != nil {
		return err
	}
	row.CloseSec = took.Seconds()
	took, err = timed(func() error { return c.start(ctx, c.n) })
	row.ReopenSec = took.Seconds()
	return err
}

// replay closes all hosts and opens them again, with logs that hold everything that the clients wrote. Every
// state machine must become what it was.
func replay(ctx context.Context, c *cluster, row *Result) error {
	for _, h := range c.hosts {
		row.LogMiB += float64(h.LogStats().AppendedBytes) / (1 << 20) / float64(len(c.hosts))
	}
	want := c.totals()
	if err := c.close(); err != nil {
		return err
	}
	took, err := timed(func() error {
		if err := c.start(ctx, c.n); err != nil {
			return err
		}
		return c.awaitTotals(ctx, want)
	})
	row.ReplaySec = took.Seconds()
	return err
}

// timed returns how long f takes.
func timed(f func() error) (time.Duration, error) {
	began := time.Now()
	err := f()
	return time.Since(began), err
}
