package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/wal"
)

// The bench of flushes repeats the comparison that Apache Ratis made when it looked for an asynchronous flush of its log
// (RATIS-1545): the durability modes side by side, on fast and slow disks, with small and large values, with and without the
// leader's clamp. There the safe asynchronous flush looked useless and an unsafe one was taken. FlushReport says why
// that is, and when the safe one wins.
//
// The clusters are real: three hosts on loopback TCP, each with its own log. A slow disk is a sleep after each real fsync.

// flushMode is one way to let an append count.
type flushMode struct {
	name     string
	mode     wal.Mode
	pipeline pipeline.Pipeline
	clamp    bool
}

const (
	flushDelay    = 3 * time.Millisecond // of group-delay
	flushInterval = 3 * time.Second      // of unsafe-interval
)

// flushModes are the rows of one disk and one size of values.
var flushModes = []flushMode{
	{"sync, in the consensus loop", wal.ModeSync, pipeline.Basic{}, true},
	{"sync", wal.ModeSync, pipeline.Clamped{}, true},
	{"sync", wal.ModeSync, pipeline.Async{}, false},
	{"group", wal.ModeGroup, pipeline.Clamped{}, true},
	{"group", wal.ModeGroup, pipeline.Async{}, false},
	{"group-delay 3ms", wal.ModeGroupDelay(flushDelay, 0, 0), pipeline.Clamped{}, true},
	{"group-delay 3ms", wal.ModeGroupDelay(flushDelay, 0, 0), pipeline.Async{}, false},
	{"unsafe-interval 3s", wal.ModeUnsafeInterval(flushInterval, 0), pipeline.Clamped{}, true},
	{"unsafe-interval 3s", wal.ModeUnsafeInterval(flushInterval, 0), pipeline.Async{}, false},
}

// flushDisk is which of the disks are slow.
type flushDisk struct {
	name        string
	all, leader bool
}

var flushDisks = []flushDisk{
	{name: "fast disks"},
	{name: "slow disks", all: true},
	{name: "the leader's disk slow", leader: true},
}

// FlushPlan is what to measure. Zero values are not filled in.
type FlushPlan struct {
	ValueBytes []int
	Clients    int
	Nodes      int
	Delay      time.Duration // of an fsync on a slow disk
	Duration   time.Duration
	Warmup     time.Duration
	Runs       int
	Dir        string
	Seed       uint64
}

// Check returns the first reason why the plan cannot be carried out; it wraps ErrRefused.
func (p FlushPlan) Check() error {
	for _, n := range p.ValueBytes {
		if n < MinValueBytes || n > MaxValueBytes {
			return refusef("--value-bytes: %d is not between %d and %d", n, MinValueBytes, MaxValueBytes)
		}
		if int64(n)*int64(p.Clients) > mostWaitingBytes/8 {
			return refusef("--value-bytes: %d clients with %d bytes each are more than %d MiB in flight", p.Clients, n, mostWaitingBytes>>23)
		}
	}
	switch {
	case p.Clients < 1 || p.Clients > mostClients:
		return refusef("--clients: %d is not between 1 and %d", p.Clients, mostClients)
	case p.Nodes < 1 || p.Nodes > mostNodes:
		return refusef("--nodes: %d is not between 1 and %d", p.Nodes, mostNodes)
	case p.Delay <= 0 || p.Delay > 10*time.Second:
		return refusef("--fsync-delay: %v is not between 1ns and 10s", p.Delay)
	}
	return checkWindows(p.Duration, p.Warmup, p.Runs)
}

// flushPoint is one mode on one kind of disk with one size of values: indexes into the lists above, and bytes.
type flushPoint struct{ disk, mode, valueBytes int }

func (pt flushPoint) String() string {
	m := flushModes[pt.mode]
	clamp := ""
	if m.clamp {
		clamp = ", clamped"
	}
	return fmt.Sprintf("%s, %s, %s%s", flushDisks[pt.disk].name, sizeName(pt.valueBytes), m.name, clamp)
}

func (p FlushPlan) points() []flushPoint {
	var points []flushPoint
	for _, n := range p.ValueBytes {
		for disk := range flushDisks {
			for mode := range flushModes {
				points = append(points, flushPoint{disk, mode, n})
			}
		}
	}
	return points
}

// FlushResult is one row. Of Result, Pipeline is the mode.
type FlushResult struct {
	Result
	Disk     string  `json:"disk"`
	Clamp    bool    `json:"leader_clamp"`
	Unsafe   bool    `json:"unsafe"`
	MBPerSec float64 `json:"mb_per_sec"`
	point    flushPoint
}

// RunFlush carries the plan out, as Run does a Plan.
func RunFlush(ctx context.Context, p FlushPlan, progress Progress) (_ *FlushReport, err error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	largest := uint64(slices.Max(p.ValueBytes))
	work, err := makeWorkDir(p.Dir, reservedBytes+uint64(p.Nodes)*(nodeBytes+512*largest))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	defer roomForDisks(p.Nodes)()
	report := &FlushReport{Plan: p, Env: readEnvironment(filepath.Dir(work))}
	watched, stopWatching := watchDisk(ctx, work)
	finished, err := p.measureAll(watched, work, progress)
	if err != nil && context.Cause(watched) == errDiskFull {
		err = errDiskFull
	}
	stopWatching()
	interrupted := err != nil && ctx.Err() != nil && !errors.Is(err, ErrMismatch)
	if err != nil && !interrupted {
		return nil, explain(err, filepath.Dir(work))
	}
	if interrupted {
		err, report.Partial = context.Cause(ctx), true
	}
	for _, pt := range p.points() {
		if runs := finished[pt]; len(runs) > 0 {
			row := medianOf(runs, func(r *FlushResult) *Result { return &r.Result })
			row.Schema, row.Env, row.Partial = FlushSchema, report.Env, report.Partial
			report.Rows = append(report.Rows, row)
		}
	}
	return report, err
}

func (p FlushPlan) measureAll(ctx context.Context, work string, progress Progress) (map[flushPoint][]FlushResult, error) {
	finished := map[flushPoint][]FlushResult{}
	progress.Begin(p.Runs * len(p.points()))
	defer progress.End()
	i := 0
	for round := range p.Runs {
		points := p.points()
		if round%2 == 1 {
			slices.Reverse(points)
		}
		for _, pt := range points {
			progress.Point(i, pt.String(), p.Warmup+p.Duration)
			i++
			result, err := inFreshDir(work, func(dir string) (FlushResult, error) { return p.measure(ctx, pt, dir, progress) })
			if err != nil {
				return finished, fmt.Errorf("%v: %w", pt, err)
			}
			finished[pt] = append(finished[pt], result)
			progress.PointDone(result.Result)
		}
	}
	return finished, nil
}

func (p FlushPlan) measure(ctx context.Context, pt flushPoint, dir string, progress Progress) (FlushResult, error) {
	mode, disk := flushModes[pt.mode], flushDisks[pt.disk]
	setup := Setup{
		Pipeline: mode.pipeline.Name(), Nodes: p.Nodes, Dir: dir, ValueBytes: pt.valueBytes, InFlight: p.Clients, Seed: p.Seed,
		Durability: mode.mode,
	}
	if disk.all {
		setup.FsyncDelay = p.Delay
	}
	if disk.leader {
		setup.LeaderDelay = p.Delay
	}
	t := trial{open: clusterUnder(mode.pipeline), setup: setup, warmup: p.Warmup, length: p.Duration, progress: progress}
	l, used, err := t.run(ctx, func(l *load, clients context.Context, wg *sync.WaitGroup) { l.startClosed(clients, p.Clients, wg) })
	if err != nil {
		return FlushResult{}, err
	}
	result := FlushResult{Disk: disk.name, Clamp: mode.clamp, Unsafe: mode.mode.Unsafe(), point: pt}
	result.Result = Result{
		Pipeline: mode.name, Nodes: p.Nodes, Clients: p.Clients, ValueBytes: pt.valueBytes,
		FsyncDelayUs: micros(setup.FsyncDelay + setup.LeaderDelay), Durability: mode.mode.String(), WarmupSec: p.Warmup.Seconds(), Seed: p.Seed, Failed: l.failed.Load(),
	}
	result.setLatencies(l.latency.merged())
	result.setRates(l.completed.Load(), l.length, used.cpu, used.allocs)
	result.setCounters(used.used)
	result.mark()
	result.MBPerSec = result.OpsPerSec * float64(pt.valueBytes) / 1e6
	return result, nil
}

// sizeName renders 1024 as "1 KiB".
func sizeName(bytes int) string {
	switch {
	case bytes >= 1<<20 && bytes%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10 && bytes%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d bytes", bytes)
}
