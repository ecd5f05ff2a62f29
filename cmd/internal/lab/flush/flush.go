// Package flush repeats the comparison that Apache Ratis made when it looked for an asynchronous flush of its
// log (RATIS-1545): the durability modes side by side, on fast and slow disks, with small and large values,
// and with and without the leader's clamp. There the safe asynchronous flush looked useless and an unsafe one
// was taken. The report says why that is, and when the safe one wins.
//
// The clusters are real: hosts on loopback TCP, each with its own log. A slow disk is a sleep after each real
// fsync.
package flush

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/bench"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/wal"
)

// mode is one rule for when an append counts.
type mode struct {
	name       string
	durability wal.Mode
	pipeline   pipeline.Pipeline
	clamp      bool
}

const (
	groupDelay     = 3 * time.Millisecond // of group-delay
	unsafeInterval = 3 * time.Second      // of unsafe-interval
)

// modes are the rows of one disk and one size of values.
var modes = []mode{
	{"sync, in the consensus loop", wal.ModeSync, pipeline.Basic{}, true},
	{"sync", wal.ModeSync, pipeline.Clamped{}, true},
	{"sync", wal.ModeSync, pipeline.Async{}, false},
	{"group", wal.ModeGroup, pipeline.Clamped{}, true},
	{"group", wal.ModeGroup, pipeline.Async{}, false},
	{"group-delay 3ms", wal.ModeGroupDelay(groupDelay, 0, 0), pipeline.Clamped{}, true},
	{"group-delay 3ms", wal.ModeGroupDelay(groupDelay, 0, 0), pipeline.Async{}, false},
	{"unsafe-interval 3s", wal.ModeUnsafeInterval(unsafeInterval, 0), pipeline.Clamped{}, true},
	{"unsafe-interval 3s", wal.ModeUnsafeInterval(unsafeInterval, 0), pipeline.Async{}, false},
}

// disk says which of the disks are slow.
type disk struct {
	name        string
	all, leader bool
}

var disks = []disk{
	{name: "fast disks"},
	{name: "slow disks", all: true},
	{name: "the leader's disk slow", leader: true},
}

// Plan is what to measure. Zero values are not filled in.
type Plan struct {
	ValueBytes []int
	Clients    int
	Hosts      int
	FsyncDelay time.Duration // of an fsync on a slow disk
	Duration   time.Duration
	Warmup     time.Duration
	Runs       int
	Dir        string
	Seed       uint64
}

const (
	maxInFlightBytes = 128 << 20 // clients × value
	maxFsyncDelay    = 10 * time.Second
)

// Validate returns the first reason why the plan cannot be carried out. It is a *lab.FieldError that wraps
// lab.ErrInvalid.
func (p Plan) Validate() error {
	for _, n := range p.ValueBytes {
		if n < load.MinValueBytes || n > load.MaxValueBytes {
			return lab.Invalid("ValueBytes", "%d is not between %d and %d", n, load.MinValueBytes, load.MaxValueBytes)
		}
		if int64(n)*int64(p.Clients) > maxInFlightBytes {
			return lab.Invalid("ValueBytes", "%d clients with %d bytes each are more than %d MiB in flight", p.Clients, n, maxInFlightBytes>>20)
		}
	}
	switch {
	case p.Clients < 1 || p.Clients > lab.MaxClients:
		return lab.Invalid("Clients", "%d is not between 1 and %d", p.Clients, lab.MaxClients)
	case p.Hosts < 1 || p.Hosts > lab.MaxHosts:
		return lab.Invalid("Hosts", "%d is not between 1 and %d", p.Hosts, lab.MaxHosts)
	case p.FsyncDelay <= 0 || p.FsyncDelay > maxFsyncDelay:
		return lab.Invalid("FsyncDelay", "%v is not between 1ns and %v", p.FsyncDelay, maxFsyncDelay)
	}
	return lab.ValidateWindows(p.Duration, p.Warmup, p.Runs)
}

// point is one mode on one kind of disk with one size of values: indexes into the lists above, and bytes.
type point struct{ disk, mode, valueBytes int }

func (pt point) String() string {
	m := modes[pt.mode]
	clamp := ""
	if m.clamp {
		clamp = ", clamped"
	}
	return fmt.Sprintf("%s, %s, %s%s", disks[pt.disk].name, report.Size(pt.valueBytes), m.name, clamp)
}

func (p Plan) points() []point {
	var points []point
	for _, n := range p.ValueBytes {
		for disk := range disks {
			for mode := range modes {
				points = append(points, point{disk, mode, n})
			}
		}
	}
	return points
}

// Run carries the plan out, as bench.Run does its own.
func Run(ctx context.Context, p Plan, progress report.Progress) (_ *Report, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	const valuesOnDisk = 512 // by which the log of a host grows, about
	defer load.AddProcessors(p.Hosts)()
	of := &Report{Plan: p}
	finished := map[point][]Result{}
	of.Partial, err = lab.InWorkDir(ctx, p.Dir, bench.NeedBytes(p.Hosts, valuesOnDisk*uint64(slices.Max(p.ValueBytes))), func(ctx context.Context, work lab.WorkDir) error {
		of.Env = lab.ReadEnvironment(work.Parent)
		return p.measureAll(ctx, work, progress, finished)
	})
	if err != nil && !of.Partial {
		return nil, err
	}
	for _, pt := range p.points() {
		if runs := finished[pt]; len(runs) > 0 {
			row := report.MedianOf(runs, func(r *Result) *report.Result { return &r.Result })
			row.Schema, row.Env, row.Partial = Schema, of.Env, of.Partial
			of.Rows = append(of.Rows, row)
		}
	}
	return of, err
}

func (p Plan) measureAll(ctx context.Context, work lab.WorkDir, progress report.Progress, finished map[point][]Result) error {
	schedule := lab.BackAndForth(p.Runs, p.points)
	progress.Begin(len(schedule))
	defer progress.End()
	for i, pt := range schedule {
		progress.Point(i, pt.String(), p.Warmup+p.Duration)
		result, err := lab.InFreshDir(work, func(dir string) (Result, error) { return p.measure(ctx, pt, dir, progress) })
		if err != nil {
			return fmt.Errorf("%v: %w", pt, err)
		}
		finished[pt] = append(finished[pt], result)
		progress.PointDone(result.Result)
	}
	return nil
}

func (p Plan) measure(ctx context.Context, pt point, dir string, progress report.Progress) (Result, error) {
	mode, disk := modes[pt.mode], disks[pt.disk]
	setup := load.Setup{
		Pipeline: mode.pipeline.Name(), Hosts: p.Hosts, Dir: dir, ValueBytes: pt.valueBytes, InFlight: p.Clients, Seed: p.Seed,
		Durability: mode.durability,
	}
	if disk.all {
		setup.FsyncDelay = p.FsyncDelay
	}
	if disk.leader {
		setup.LeaderDelay = p.FsyncDelay
	}
	t := load.Trial{
		Open: bench.ClusterUnder(mode.pipeline), Setup: setup, Warmup: p.Warmup, Length: p.Duration,
		Generator: load.Closed{Clients: p.Clients}, Observer: progress,
	}
	outcome, err := t.Run(ctx)
	if err != nil {
		return Result{}, err
	}
	result := Result{Disk: disk.name, Clamp: mode.clamp, Unsafe: mode.durability.Unsafe(), point: pt}
	result.Result = report.Result{
		Pipeline: mode.name, Hosts: p.Hosts, Clients: p.Clients, ValueBytes: pt.valueBytes,
		FsyncDelayUs: report.Micros(setup.FsyncDelay + setup.LeaderDelay), Durability: mode.durability.String(), Seed: p.Seed,
	}
	result.SetOutcome(outcome)
	result.MBPerSec = result.OpsPerSec * float64(pt.valueBytes) / 1e6
	return result, nil
}
