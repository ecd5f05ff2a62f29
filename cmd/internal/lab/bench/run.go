package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/wal"
)

// Run carries the plan out. Files are made in a new directory under p.Dir, which is gone when Run returns.
//
// When ctx ends, Run stops cleanly and returns the points that were finished, marked partial, with ctx's
// cause as the error. With any other error there is no report. The error is a *lab.FieldError (the plan,
// the directory, or space on the disk), lab.ErrMismatch (a target lost or doubled writes), or what a target
// returned.
func Run(ctx context.Context, p Plan, progress report.Progress) (_ *Report, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if err := p.validateProfile(); err != nil {
		return nil, err
	}
	defer load.AddProcessors(p.Hosts)()
	r := &runner{plan: p, progress: progress, started: time.Now()}
	interrupted, err := lab.InWorkDir(ctx, p.Dir, NeedBytes(p.Hosts, p.preparedBytes()), func(ctx context.Context, work lab.WorkDir) error {
		r.work, r.env = work, lab.ReadEnvironment(work.Parent)
		return r.measureAll(ctx)
	})
	if err != nil && !interrupted {
		return nil, err
	}
	if p.Profile != "" {
		err = errors.Join(err, ofProfile(report.WriteFiles(p.Profile, r.profiles)))
	}
	return r.report(interrupted), err
}

// runner carries out one plan, point after point. It belongs to the goroutine of Run.
type runner struct {
	plan     Plan
	work     lab.WorkDir
	progress report.Progress
	env      lab.Environment
	started  time.Time

	limits   []report.Result
	finished map[point][]report.Result
	profiles profiles
	skipped  int
	overhead time.Duration // what the points so far took beyond their windows, all together
}

const (
	limitLength      = time.Second
	briefLimitLength = 400 * time.Millisecond // when there is a budget
	firstOverhead    = 500 * time.Millisecond // guess for the first point
	minWindow        = 400 * time.Millisecond // of warm-up and measurement; less says nothing
)

func (r *runner) measureAll(ctx context.Context) error {
	schedule := r.plan.schedule()
	r.progress.Begin(len(schedule))
	defer r.progress.End()
	if err := r.measureLimits(ctx); err != nil {
		return err
	}
	r.finished = make(map[point][]report.Result)
	for i, pt := range schedule {
		warmup, length, ok := r.window(i, len(schedule)-i)
		if !ok {
			r.skipped = len(schedule) - i
			return nil
		}
		r.progress.Point(i, pt.String(), warmup+length)
		start := time.Now()
		result, err := lab.InFreshDir(r.work, func(dir string) (report.Result, error) {
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

func (r *runner) measureLimits(ctx context.Context) error {
	length := min(limitLength, r.plan.Duration)
	if r.plan.Budget > 0 {
		length = min(briefLimitLength, length)
	}
	for _, row := range limitRows(r.plan.Hosts) {
		r.progress.Phase(row.name)
		result, err := lab.InFreshDir(r.work, func(dir string) (report.Result, error) {
			return row.measure(ctx, dir, r.plan.FsyncDelay, length)
		})
		if err != nil {
			return fmt.Errorf("%s%s: %w", limitPrefix, row.name, err)
		}
		r.limits = append(r.limits, report.Median([]report.Result{result}))
	}
	return nil
}

// window returns warm-up and measurement of the next point. Under a budget both shrink by the same factor, so
// that the points left fit in, but not below minWindow. ok is false when there is no time even for that.
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
	if left < overhead+minWindow {
		return 0, 0, false
	}
	each := max(left/time.Duration(pointsLeft)-overhead, minWindow)
	share := min(1, report.Ratio(each.Seconds(), (warmup+length).Seconds()))
	return time.Duration(share * float64(warmup)), time.Duration(share * float64(length)), true
}

// measure takes one point through its phases.
func (r *runner) measure(ctx context.Context, pt point, dir string, warmup, length time.Duration) (report.Result, error) {
	p := r.plan
	var observer load.Observer = r.progress
	watch := &profiling{Progress: r.progress}
	profiles := p.Profile != "" && len(r.finished[pt]) == 0
	if profiles {
		observer = watch
		defer watch.stop()
	}
	t := load.Trial{
		Open: p.Targets.open, Warmup: warmup, Length: length, Observer: observer, Generator: load.Closed{Clients: pt.clients},
		Setup: load.Setup{
			Pipeline: pt.pipeline, Hosts: p.Hosts, Dir: dir, FsyncDelay: p.FsyncDelay, Durability: p.Durability,
			ValueBytes: p.ValueBytes, Groups: p.Groups, InFlight: pt.inFlight(p), Brief: p.Budget > 0, Seed: p.Seed,
			WrittenBytes: p.writtenBytes(r.pace(pt), warmup+length),
		},
	}
	if IsBatch(pt.pipeline) {
		t.Generator = load.Batched{Outstanding: pt.clients}
	}
	if pt.rate > 0 {
		t.Generator = load.Open{Rate: pt.rate, MaxInFlight: p.MaxInFlight, Seed: p.Seed}
	}
	outcome, err := t.Run(ctx)
	if err != nil {
		return report.Result{}, err
	}
	result := p.result(pt, outcome)
	if profiles {
		of, err := watch.of(pt, result.CPUUsPerOp)
		if err != nil {
			return report.Result{}, err
		}
		r.profiles = append(r.profiles, of)
	}
	return result, nil
}

// pace is about how many writes a second a point will make: as many as bare under the same load, or as are
// offered. bare comes first under each load.
func (r *runner) pace(pt point) float64 {
	pace := pt.rate
	for _, done := range r.finished[point{BareName, pt.clients, pt.rate}] {
		pace = max(pace, done.OpsPerSec)
	}
	return pace
}

func (p Plan) result(pt point, o load.Outcome) report.Result {
	result := report.Result{
		Pipeline: pt.pipeline, Hosts: p.Hosts, Clients: pt.clients, Rate: pt.rate,
		ValueBytes: p.ValueBytes, FsyncDelayUs: report.Micros(p.FsyncDelay), Durability: p.Durability.String(),
	}
	if IsBaseline(pt.pipeline) {
		result.Durability = wal.ModeGroup.String()
	}
	result.SetOutcome(o)
	return result
}

// report merges the runs of each point and puts the rows into the order of the table.
func (r *runner) report(partial bool) *Report {
	of := &Report{Plan: r.plan, Env: r.env, Partial: partial || r.skipped > 0, Skipped: r.skipped, profiles: r.profiles}
	of.Rows = append(of.Rows, r.limits...)
	for _, pt := range r.plan.points() {
		if runs := r.finished[pt]; len(runs) > 0 {
			of.Rows = append(of.Rows, report.Median(runs))
		}
	}
	for i := range of.Rows {
		row := &of.Rows[i]
		row.Schema, row.Seed, row.Env, row.Partial = Schema, r.plan.Seed, r.env, of.Partial
		if row.Warnings == nil {
			row.Warnings = []string{}
		}
	}
	return of
}
