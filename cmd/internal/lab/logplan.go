package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// LogPlan is what the bench of logs measures: each of the logs under each number of appenders with each number of groups, and
// how fast it is opened. Zero values are not filled in; the command line has the defaults.
type LogPlan struct {
	Logs         []LogChild // in the order of the table, the raw file among them
	Appenders    []int
	Groups       []int
	ValueBytes   int
	KeepBytes    int64 // about what a log holds while it is under load: older entries are compacted
	RecoverBytes int64 // in the log whose opening is measured; 0: that is not measured
	Duration     time.Duration
	Warmup       time.Duration
	Runs         int
	Dir          string
	Seed         uint64
	// Missing says in a sentence each what was asked for and cannot be measured.
	Missing []string
}

// Bounds of a LogPlan besides those of a Plan.
const (
	mostGroups       = 1024
	mostWaitingBytes = 1 << 30 // appenders × value
	leastValueBytes  = 128     // smaller ones, and the raw file's headers were a third of what it writes
	mostKeptBytes    = 16 << 30
	pointTimeout     = 2 * time.Minute // besides its window: filling, reading back
)

// Check returns the first reason why the plan cannot be carried out, as one sentence; it wraps ErrRefused.
func (p LogPlan) Check() error {
	for _, a := range p.Appenders {
		if a < 1 || a > mostClients {
			return refusef("--appenders: %d is not between 1 and %d", a, mostClients)
		}
		if int64(a)*int64(p.ValueBytes) > mostWaitingBytes {
			return refusef("--value-bytes: %d appenders with %d bytes each are more than %d MiB in memory", a, p.ValueBytes, mostWaitingBytes>>20)
		}
	}
	for _, g := range p.Groups {
		if g < 1 || g > mostGroups {
			return refusef("--groups: %d is not between 1 and %d", g, mostGroups)
		}
	}
	switch {
	case p.ValueBytes < leastValueBytes || p.ValueBytes > MaxValueBytes/2:
		return refusef("--value-bytes: %d is not between %d and %d", p.ValueBytes, leastValueBytes, MaxValueBytes/2)
	case p.KeepBytes < 1<<20 || p.KeepBytes > mostKeptBytes:
		return refusef("--keep-mib: %d is not between 1 and %d", p.KeepBytes>>20, mostKeptBytes>>20)
	case p.RecoverBytes < 0 || p.RecoverBytes > mostKeptBytes:
		return refusef("--recover-mib: %d is not between 0 and %d", p.RecoverBytes>>20, mostKeptBytes>>20)
	}
	return checkWindows(p.Duration, p.Warmup, p.Runs)
}

// needBytes is what one point may occupy: the raw file's pair, segments that are allocated ahead in each group, and files of
// bbolt, which hold their pages twice after a transaction over all of them.
func (p LogPlan) needBytes() uint64 {
	const ahead = 2 << 30
	return uint64(reservedBytes + ahead + 3*max(p.KeepBytes, p.RecoverBytes))
}

// logPoint is one log under one load; with no appenders it is a recovery.
type logPoint struct {
	log       int
	appenders int
	groups    int
}

func (p LogPlan) name(pt logPoint) string {
	if pt.appenders == 0 {
		return p.Logs[pt.log].Name + ", recovery"
	}
	return fmt.Sprintf("%s, %s, %s", p.Logs[pt.log].Name, plural(pt.appenders, "appender"), plural(pt.groups, "group"))
}

// points lists what one round measures in the order of the table.
func (p LogPlan) points() []logPoint {
	var points []logPoint
	for _, groups := range p.Groups {
		for _, appenders := range p.Appenders {
			for i := range p.Logs {
				points = append(points, logPoint{log: i, appenders: appenders, groups: groups})
			}
		}
	}
	if p.RecoverBytes > 0 {
		for i := range p.Logs {
			points = append(points, logPoint{log: i, groups: 1})
		}
	}
	return points
}

// schedule lists the points of all rounds.
func (p LogPlan) schedule() []logPoint { return backAndForth(p.Runs, p.points) }

func (p LogPlan) request(pt logPoint, dir string) LogRequest {
	return LogRequest{
		Dir: dir, Appenders: pt.appenders, Groups: pt.groups, ValueBytes: p.ValueBytes, KeepBytes: p.KeepBytes,
		RecoverBytes: p.RecoverBytes, Warmup: p.Warmup, Length: p.Duration, Seed: p.Seed,
	}
}

// logRunner carries out one LogPlan; it belongs to the goroutine of RunLogs.
type logRunner struct {
	plan     LogPlan
	work     string
	progress Progress
	finished map[logPoint][]LogResult
	broken   map[int]bool // peers that failed, and are not asked again
	missing  []string
}

// RunLogs carries the plan out, as Run does a Plan. A peer that fails is reported as missing and the rest goes on; the raw
// file or our own log failing is an error, and so is any log that does not hold what it has acknowledged.
func RunLogs(ctx context.Context, p LogPlan, progress Progress) (_ *LogReport, err error) {
	if err := p.Check(); err != nil {
		return nil, err
	}
	work, err := makeWorkDir(p.Dir, p.needBytes())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	parent := filepath.Dir(work)
	r := &logRunner{plan: p, work: work, progress: progress, finished: map[logPoint][]LogResult{}, broken: map[int]bool{}, missing: p.Missing}
	env := readEnvironment(parent)
	watched, stopWatching := watchDisk(ctx, work)
	err = r.measureAll(watched)
	if err != nil && context.Cause(watched) == errDiskFull {
		err = errDiskFull
	}
	stopWatching()
	interrupted := err != nil && ctx.Err() != nil && !errors.Is(err, ErrMismatch)
	if err != nil && !interrupted {
		return nil, explain(err, parent)
	}
	if interrupted {
		err = context.Cause(ctx)
	}
	return r.report(env, interrupted), err
}

func (r *logRunner) measureAll(ctx context.Context) error {
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
		case ctx.Err() != nil || errors.Is(err, ErrMismatch) || !r.plan.Logs[pt.log].Peer:
			return fmt.Errorf("%s: %w", r.plan.name(pt), err)
		default:
			r.broken[pt.log] = true
			r.missing = append(r.missing, fmt.Sprintf("%s failed and is not measured further: %v", r.plan.name(pt), err))
		}
	}
	return nil
}

func (r *logRunner) measure(ctx context.Context, pt logPoint) (LogResult, error) {
	limit := r.plan.Warmup + r.plan.Duration + pointTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it was not done within %v", limit))
	defer cancel()
	return inFreshDir(r.work, func(dir string) (LogResult, error) {
		return r.plan.Logs[pt.log].measure(ctx, r.plan.request(pt, dir))
	})
}

func (r *logRunner) report(env Environment, partial bool) *LogReport {
	report := &LogReport{Plan: r.plan, Env: env, Partial: partial, Missing: r.missing}
	for _, pt := range r.plan.points() {
		runs := r.finished[pt]
		if len(runs) == 0 {
			continue
		}
		row := medianOf(runs, func(r *LogResult) *Result { return &r.Result })
		row.Schema, row.Env, row.Partial = LogSchema, env, partial
		report.Rows = append(report.Rows, row)
	}
	return report
}
