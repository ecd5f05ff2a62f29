package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/millrace/millrace/wal"
)

// runner carries out one plan, point after point; it belongs to the goroutine of Run.
type runner struct {
	plan     Plan
	work     string // our directory, with one sub-directory at a time
	progress Progress
	env      Environment
	started  time.Time

	limits   []Result
	finished map[point][]Result
	skipped  int
	overhead time.Duration // what the points so far took beyond their windows, all together
}

const (
	openTimeout   = 30 * time.Second
	verifyTimeout = 30 * time.Second

	limitLength      = time.Second
	shortLimitLength = 400 * time.Millisecond // when there is a budget
	firstOverhead    = 500 * time.Millisecond // guess for the first point
	shortestWindow   = 400 * time.Millisecond // of warm-up and measurement; less says nothing

	// The harness stops before the disk is full: a full disk hurts others than us.
	reservedBytes = 128 << 20
	nodeBytes     = 128 << 20 // what the log of one node needs at the least
	diskWatch     = 200 * time.Millisecond
)

// runAll measures everything, or stops with the first error; a disk that fills up meanwhile is that error.
func (r *runner) runAll(ctx context.Context) error {
	ctx, stopWatching := watchDisk(ctx, r.work)
	defer stopWatching()
	err := r.measureAll(ctx)
	if err != nil && context.Cause(ctx) == errDiskFull {
		return errDiskFull
	}
	return err
}

func (r *runner) measureAll(ctx context.Context) error {
	schedule := r.plan.schedule()
	r.progress.Begin(len(schedule))
	defer r.progress.End()

	length := min(limitLength, r.plan.Duration)
	if r.plan.Budget > 0 {
		length = min(shortLimitLength, length)
	}
	for _, row := range limitRows(r.plan.Nodes) {
		r.progress.Phase(row.name)
		result, err := inFreshDir(r.work, func(dir string) (Result, error) {
			return row.measure(ctx, dir, r.plan.FsyncDelay, length)
		})
		if err != nil {
			return fmt.Errorf("%s%s: %w", limitPrefix, row.name, err)
		}
		r.limits = append(r.limits, median([]Result{result}))
	}

	r.finished = make(map[point][]Result)
	for i, pt := range schedule {
		warmup, length, ok := r.window(i, len(schedule)-i)
		if !ok {
			r.skipped = len(schedule) - i
			return nil
		}
		r.progress.Point(i, pt.String(), warmup+length)
		start := time.Now()
		result, err := inFreshDir(r.work, func(dir string) (Result, error) {
			return r.measure(ctx, pt, dir, warmup, length)
		})
		if err != nil {
			return fmt.Errorf("%v: %w", pt, err)
		}
		r.overhead += time.Since(start) - warmup - length
		r.finished[pt] = append(r.finished[pt], result)
		r.progress.PointDone(result)
	}
	return nil
}

// window returns warm-up and measurement of the next point. Under a budget both shrink alike so that all points left fit
// in, but not below what still says something; ok is false when there is no time even for that.
func (r *runner) window(done, pointsLeft int) (warmup, length time.Duration, ok bool) {
	warmup, length = r.plan.Warmup, r.plan.Duration
	if r.plan.Budget <= 0 {
		return warmup, length, true
	}
	overhead := firstOverhead
	if done > 0 {
		overhead = r.overhead / time.Duration(done)
	}
	left := r.plan.Budget - time.Since(r.started)
	if left < overhead+shortestWindow {
		return 0, 0, false
	}
	room := max(left/time.Duration(pointsLeft)-overhead, shortestWindow)
	share := min(1, ratio(room.Seconds(), (warmup+length).Seconds()))
	return time.Duration(share * float64(warmup)), time.Duration(share * float64(length)), true
}

// measure takes one point through its phases.
func (r *runner) measure(ctx context.Context, pt point, dir string, warmup, length time.Duration) (Result, error) {
	p := r.plan
	setup := Setup{
		Pipeline: pt.pipeline, Nodes: p.Nodes, Dir: dir, FsyncDelay: p.FsyncDelay, Durability: p.Durability,
		ValueBytes: p.ValueBytes, InFlight: pt.inFlight(p), Brief: p.Budget > 0, Seed: p.Seed,
	}
	t := trial{open: p.Targets.open, setup: setup, warmup: warmup, length: length, progress: r.progress}
	l, used, err := t.run(ctx, func(l *load, clients context.Context, wg *sync.WaitGroup) {
		if pt.rate > 0 {
			o := &openLoop{l: l, rate: pt.rate, maxInFlight: p.MaxInFlight, seed: p.Seed, newPause: newPause}
			o.start(clients, wg)
			return
		}
		l.startClosed(clients, pt.clients, wg)
	})
	if err != nil {
		return Result{}, err
	}
	return r.result(pt, l, used), nil
}

// trial is one target under one load.
type trial struct {
	open           OpenFunc
	setup          Setup
	warmup, length time.Duration
	progress       Progress
}

// run starts the target, has start put it under load, verifies what it holds, and closes it.
func (t trial) run(ctx context.Context, start func(*load, context.Context, *sync.WaitGroup)) (_ *load, _ measured, err error) {
	t.progress.Phase("start")
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	target, err := t.open(opening, t.setup)
	if err != nil {
		return nil, measured{}, fmt.Errorf("start: %w", err)
	}
	defer func() { err = errors.Join(err, target.Close()) }()

	l := newLoad(target, newValueSource(t.setup.ValueBytes, t.setup.Seed), t.warmup, t.length)
	t.progress.Live(l.completed.Load)
	used, err := l.run(ctx, t.progress.Phase, func(clients context.Context, wg *sync.WaitGroup) { start(l, clients, wg) })
	if err != nil {
		return nil, measured{}, err
	}

	t.progress.Phase("verify")
	verifying, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	if err := target.Verify(verifying, l.ledger); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx) // cut short by the user: says nothing about the target
		}
		return nil, measured{}, err
	}
	return l, used, nil
}

func (r *runner) result(pt point, l *load, used measured) Result {
	p := r.plan
	result := Result{
		Pipeline: pt.pipeline, Nodes: p.Nodes, Clients: pt.clients, Rate: pt.rate,
		ValueBytes: p.ValueBytes, FsyncDelayUs: micros(p.FsyncDelay), Durability: p.Durability.String(),
		WarmupSec: l.warmup.Seconds(), Failed: l.failed.Load(), Offered: l.offered, Dropped: l.dropped,
	}
	if pt.pipeline == BareName {
		result.Durability = wal.ModeGroup.String()
	}
	result.setLatencies(l.latency.merged())
	result.setRates(l.completed.Load(), l.length, used.cpu, used.allocs)
	result.setCounters(used.used)
	if pt.rate > 0 {
		result.ServiceMeanUs = micros(l.service.merged().mean())
		result.LagP99Us = micros(l.lag.merged().quantile(0.99))
	}
	result.mark()
	return result
}

// report merges the runs of each point and puts the rows into the order of the table.
func (r *runner) report(partial bool) *Report {
	report := &Report{Plan: r.plan, Env: r.env, Partial: partial || r.skipped > 0, Skipped: r.skipped}
	report.Rows = append(report.Rows, r.limits...)
	for _, pt := range r.plan.points() {
		if runs := r.finished[pt]; len(runs) > 0 {
			report.Rows = append(report.Rows, median(runs))
		}
	}
	for i := range report.Rows {
		row := &report.Rows[i]
		row.Schema, row.Seed, row.Env, row.Partial = Schema, r.plan.Seed, r.env, report.Partial
		if row.Marks == nil {
			row.Marks = []string{}
		}
	}
	return report
}

// needBytes is the room that a plan takes at the least.
func (p Plan) needBytes() uint64 { return uint64(reservedBytes + p.Nodes*(bareDiskBytes+nodeBytes)) }

// makeWorkDir makes the directory under which everything happens, after looking whether there is room.
func makeWorkDir(parent string, need uint64) (string, error) {
	if parent == "" {
		parent = os.TempDir()
		if filesystemOf(parent) == tmpfs {
			parent = "." // an fsync of memory proves nothing
		}
	}
	parent, err := filepath.Abs(parent)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(parent)
	if err != nil {
		return "", refusef("--dir: cannot use %s: %v", parent, reason(err))
	}
	if !info.IsDir() {
		return "", refusef("--dir: %s is not a directory", parent)
	}
	if free, ok := freeBytes(parent); ok && free < need {
		return "", refusef("--dir: %s has %d MiB free and the bench needs at least %d MiB", parent, free>>20, need>>20)
	}
	work, err := os.MkdirTemp(parent, ".millrace-bench-")
	if err != nil {
		return "", refusef("--dir: cannot write to %s: %v", parent, reason(err))
	}
	return work, nil
}

// inFreshDir runs f with a new directory that is removed afterwards, whatever happened.
func inFreshDir[T any](parent string, f func(dir string) (T, error)) (_ T, err error) {
	dir, err := os.MkdirTemp(parent, "point-")
	if err != nil {
		var none T
		return none, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return f(dir)
}

var errDiskFull = errors.New("the disk is nearly full")

// watchDisk returns a context that ends when the filesystem of dir is about to fill up.
func watchDisk(ctx context.Context, dir string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(diskWatch)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if free, ok := freeBytes(dir); ok && free < reservedBytes {
				cancel(errDiskFull)
				return
			}
		}
	})
	return ctx, func() {
		cancel(nil)
		wg.Wait()
	}
}

// explain turns a full disk, however it showed, into a sentence with a way out.
func explain(err error, dir string) error {
	if errors.Is(err, errDiskFull) || errors.Is(err, syscall.ENOSPC) {
		return refusef("--dir: the disk under %s is full: free some room, shorten --duration, or choose another --dir", dir)
	}
	return err
}
