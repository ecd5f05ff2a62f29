package peers

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/lab/peer"
)

// Run carries the plan out, as bench.Run does its own. If a peer fails, or does not hold what it
// acknowledged, all its figures are dropped, it is reported as missing, and the run continues. If one of ours
// fails, the run fails.
func Run(ctx context.Context, p Plan, progress report.Progress) (_ *Report, err error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	r := &runner{plan: p, progress: progress, runs: map[point][]report.Result{}, broken: map[int]bool{}, missing: p.Missing}
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
	runs     map[point][]report.Result // in the order of the rounds
	counted  []count
	broken   map[int]bool // systems that failed, and are not asked again
	missing  []string
}

func (r *runner) measureAll(ctx context.Context) error {
	schedule := r.plan.schedule()
	counting := 0
	if r.plan.Strace != "" {
		counting = len(r.plan.Systems)
	}
	r.progress.Begin(counting + len(schedule))
	defer r.progress.End()
	if counting > 0 {
		if err := r.countAll(ctx); err != nil {
			return err
		}
	}
	for i, pt := range schedule {
		if r.broken[pt.system] {
			continue
		}
		system := r.plan.Systems[pt.system]
		r.progress.Point(counting+i, r.plan.name(pt), max(r.plan.Warmup, system.MinWarmup)+r.plan.Duration)
		r.progress.Phase("measure")
		result, err := r.measure(ctx, pt, system.Command, func(pt point, dir string) peer.Request {
			request := r.plan.request(pt, dir)
			request.WrittenBytes = r.writtenBytes(pt)
			return request
		})
		switch {
		case err == nil:
			r.runs[pt] = append(r.runs[pt], result)
			r.progress.PointDone(result)
		case ctx.Err() != nil || !system.isPeer():
			return fmt.Errorf("%s: %w", r.plan.name(pt), err)
		default:
			r.drop(pt.system, fmt.Sprintf("%s: %v", r.plan.name(pt), err))
		}
	}
	return nil
}

// drop forgets what was measured of a system.
func (r *runner) drop(system int, why string) {
	r.broken[system] = true
	r.missing = append(r.missing, why)
	for pt := range r.runs {
		if pt.system == system {
			delete(r.runs, pt)
		}
	}
}

func (r *runner) measure(ctx context.Context, pt point, command []string, request func(point, string) peer.Request) (report.Result, error) {
	limit := r.plan.Warmup + r.plan.Systems[pt.system].MinWarmup + r.plan.Duration + pointTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it was not done within %v", limit))
	defer cancel()
	return lab.InFreshDir(r.work, func(dir string) (report.Result, error) {
		return ask(ctx, command, request(pt, dir), r.plan.Systems[pt.system].Name)
	})
}

// ask makes a child measure one point.
func ask(ctx context.Context, command []string, request peer.Request, name string) (report.Result, error) {
	result, err := lab.AskChild[report.Result](ctx, command, request)
	if err != nil {
		return report.Result{}, err
	}
	result.Pipeline, result.Hosts, result.Clients, result.ValueBytes = name, request.Hosts, request.Clients, request.ValueBytes
	if result.Warnings == nil {
		result.Warnings = []string{}
	}
	return result, nil
}

// report merges the runs of each point and puts the rows into the order of the table.
func (r *runner) report(env lab.Environment, partial bool) *Report {
	of := &Report{Plan: r.plan, Env: env, Partial: partial, Counted: r.counted, Missing: r.missing}
	for _, clients := range r.plan.Clients {
		group := r.groupOf(clients)
		for i := range group {
			row := &group[i]
			row.Schema, row.Seed, row.Env, row.Partial = Schema, r.plan.Seed, env, partial
		}
		of.Rows = append(of.Rows, group...)
	}
	return of
}
