package recipe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host/pipeline"
)

// run is a recipe under way: its session, and how many of its steps have begun.
type run struct {
	*experiment.Session
	n int
}

// step begins the next one.
func (r *run) step(name string, about time.Duration) {
	r.Progress.Point(r.n, name, about)
	r.n++
}

// passed reports whether an earlier part of the run has finished all of the next repeats. It steps over them.
func (r *run) passed(repeats, steps int) bool {
	if !r.Passed(repeats) {
		return false
	}
	r.n += steps
	return true
}

// trial is a step that makes the next repeat of a point, unless an earlier part of the run has finished it.
func (r *run) trial(point string, about time.Duration, measure func() error) error {
	r.step(point, about)
	return r.repeat(point, measure)
}

// repeat is trial without the step.
func (r *run) repeat(point string, measure func() error) error {
	_, done, err := r.Finished(point)
	if !done && err == nil {
		err = measure()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", point, err)
	}
	return nil
}

// trials is repeat of a point that takes n steps.
func (r *run) trials(point string, n int, measure func() error) error {
	end := r.n + n
	defer func() { r.n = end }()
	return r.repeat(point, measure)
}

// together makes n repeats in one measurement of some steps, unless an earlier part of the run has finished
// all of them. What was measured goes to put, with partial if it was cut short.
func together[T any](r *run, n, steps int, measure func() (T, error), put func(rows T, began time.Time, partial bool)) error {
	if r.passed(n, steps) {
		return nil
	}
	began := time.Now()
	rows, err := measure()
	put(rows, began, err != nil)
	return errors.Join(err, r.Save())
}

// inFreshDir calls f with a new directory, as the session does.
func inFreshDir[T any](s *experiment.Session, f func(dir string) (T, error)) (result T, err error) {
	err = s.InFreshDir(func(dir string) error {
		var failed error
		result, failed = f(dir)
		return failed
	})
	return result, err
}

// verify checks that a cluster has what was acknowledged.
func verify(ctx context.Context, s *experiment.Session, of load.Target, ledger *load.Ledger) error {
	s.Progress.Phase("verify")
	verifying, cancel := context.WithTimeout(ctx, load.VerifyTimeout)
	defer cancel()
	return of.Verify(verifying, ledger)
}

// capacity measures a closed loop, which has a name, and returns its rate. The point is part of the run. In a
// run that is resumed the rate is the one that was measured at first, so that all parts offer the same loads.
func capacity(ctx context.Context, s *run, c *rig.Cluster, p experiment.Point) (float64, error) {
	r, err := s.Window(ctx, c, p, nil)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	return max(r.Figures[archive.OpsPerSec.Name], 1), nil // of a window without an operation the repeat warns
}

// needMiB is the space of a recipe with fixed numbers.
func needMiB(full, quick int) func(Size) int {
	return func(s Size) int { return pick(s, full, quick, 64) }
}

// three is the usual cluster: three hosts over TCP under async.
func three() rig.Setup { return rig.Setup{Hosts: 3, Transport: rig.TCP, Pipeline: pipeline.Async{}} }

// lengths are the times of a point.
type lengths struct{ least, most, length time.Duration }

func (l lengths) of(p experiment.Point) experiment.Point {
	p.Warmup, p.Length = experiment.Steady(l.least, l.most), l.length
	if p.MaxInFlight == 0 {
		p.MaxInFlight = 10_000
	}
	return p
}

// Costs of what is no window, for the estimates.
const (
	aboutCluster = 900 * time.Millisecond // to open one, elect, drain, verify, and remove it
	aboutDrain   = 300 * time.Millisecond // to drain and verify a window on an open cluster
)

// about returns how long a window takes, with its warm-up, on a cluster that is open.
func (l lengths) about() time.Duration { return (l.least+l.most)/2 + l.length + aboutDrain }

// times returns n times d.
func times(n int, d time.Duration) time.Duration { return time.Duration(n) * d }
