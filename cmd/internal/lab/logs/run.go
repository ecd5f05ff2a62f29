package logs

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Run carries the plan out, as bench.Run does its own. If another project's log fails, it is reported as
// missing and the run continues. If the raw file or our log fails, the run fails. A log that does not hold
// what it acknowledged always ends the run.
func Run(ctx context.Context, p Plan, progress report.Progress) (_ *Report, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	r := &runner{plan: p, progress: progress, finished: map[point][]child.Result{}, broken: map[int]bool{}, missing: p.Missing}
	var env lab.Environment
	interrupted, err := lab.InWorkDir(ctx, p.Dir, p.needBytes(), func(ctx context.Context, work lab.WorkDir) error {
		r.work, env = work, lab.ReadEnvironment(work.Parent)
		return r.measureAll(ctx)
	})
	if err != nil && !interrupted {
		return nil, err
	}
	return r.report(env, interrupted), err
}

// runner carries out one Plan. It belongs to the goroutine of Run.
type runner struct {
	plan     Plan
	work     lab.WorkDir
	progress report.Progress
	finished map[point][]child.Result
	broken   map[int]bool // other projects' logs that failed, and are not asked again
	missing  []string
}

func (r *runner) measureAll(ctx context.Context) error {
	schedule := r.plan.schedule()
	r.progress.Begin(len(schedule))
	defer r.progress.End()
	for i, pt := range schedule {
		if r.broken[pt.log] {
			continue
		}
		r.progress.Point(i, r.plan.name(pt), r.plan.Warmup+r.plan.Duration)
		r.progress.Phase("measure")
		result, err := r.measure(ctx, pt)
		switch {
		case err == nil:
			r.finished[pt] = append(r.finished[pt], result)
			r.progress.PointDone(result.Result)
		case ctx.Err() != nil || errors.Is(err, lab.ErrMismatch) || !r.plan.Logs[pt.log].Other:
			return fmt.Errorf("%s: %w", r.plan.name(pt), err)
		default:
			r.broken[pt.log] = true
			r.missing = append(r.missing, fmt.Sprintf("%s failed and is not measured further: %v", r.plan.name(pt), err))
		}
	}
	return nil
}

func (r *runner) measure(ctx context.Context, pt point) (child.Result, error) {
	limit := r.plan.Warmup + r.plan.Duration + pointTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it was not done within %v", limit))
	defer cancel()
	return lab.InFreshDir(r.work, func(dir string) (child.Result, error) {
		return r.plan.Logs[pt.log].measure(ctx, r.plan.request(pt, dir))
	})
}

func (r *runner) report(env lab.Environment, partial bool) *Report {
	of := &Report{Plan: r.plan, Env: env, Partial: partial, Missing: r.missing}
	for _, pt := range r.plan.points() {
		runs := r.finished[pt]
		if len(runs) == 0 {
			continue
		}
		row := report.MedianOf(runs, func(r *child.Result) *report.Result { return &r.Result })
		row.Schema, row.Env, row.Partial = Schema, env, partial
		of.Rows = append(of.Rows, row)
	}
	return of
}
