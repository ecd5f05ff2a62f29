// Package recipe has the experiments of the sources, and our own. The sources' are the dissertation's
// benchmark and its open questions, rafttoy's comparison of pipelines, and the comparison of Apache Ratis's
// flushes. Our own are of the typed API, of many groups, of objects and of snapshots. Each is one file:
// what it measures, the source's figures, and the demands, which it evaluates.
package recipe

import (
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
	"github.com/millrace/millrace/host/pipeline"
)

// Size is how much of an experiment is made.
type Size int

// The sizes.
const (
	Full   Size = iota // all recipes together within 55 minutes on two cores
	Quick              // within about two minutes on two cores
	Glance             // everything once, for a moment: does it run here?
	Long               // with the sources' own numbers, however long that takes
)

// pick returns what goes with a size. Long has what Full has, unless orLong says something else.
func pick[T any](s Size, full, quick, glance T) T { return [...]T{full, quick, glance, full}[s] }

// orLong returns what Full has, or Long.
func orLong[T any](s Size, full, long T) T {
	if s == Long {
		return long
	}
	return full
}

// Recipe is one experiment.
type Recipe struct {
	Name     string
	Question string
	Source   string
	Hosts    int
	NeedMiB  func(Size) int
	About    func(Size) time.Duration // on two cores with a disk of some 400 MB/s, give or take a third
	Run      func(context.Context, *experiment.Session, Size) error
}

// All returns the recipes in the order of the list.
func All() []Recipe {
	return []Recipe{rafttoy, logcabin, ratis, b0, b1, b2, b3, b4, b5, b6, nextBatch, flush, typed, manyGroups, largeObjects, takenSnapshots}
}

// Names returns their names.
func Names() (names []string) {
	for _, r := range All() {
		names = append(names, r.Name)
	}
	return names
}

// ByName returns one of them.
func ByName(name string) (Recipe, bool) {
	for _, r := range All() {
		if r.Name == name {
			return r, true
		}
	}
	return Recipe{}, false
}

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

// capacity measures a closed loop, which has a name, and returns its rate. The point is part of the run. In a
// run that is resumed the rate is the one that was measured at first, so that all parts offer the same loads.
func capacity(ctx context.Context, s *experiment.Session, c *rig.Cluster, p experiment.Point) (float64, error) {
	r, err := s.Window(ctx, c, p, nil)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", p.Name, err)
	}
	return max(r.Figures[archive.OpsPerSec.Name], 1), nil // of a window without an operation the repeat warns
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

// Estimate says how long a recipe will take and what is kept if it is interrupted.
func (r Recipe) Estimate(s Size) string {
	return fmt.Sprintf("%s: about %v on two cores, with %d MiB of disk space. Ctrl-C ends it, and keeps what was finished.", r.Name, r.About(s).Round(5*time.Second), r.NeedMiB(s))
}

// progress counts the steps of a recipe.
type progress struct {
	s *experiment.Session
	n int
}

func begin(s *experiment.Session, steps int) *progress {
	s.Progress.Begin(steps)
	return &progress{s: s}
}

// step begins the next one.
func (p *progress) step(name string, about time.Duration) {
	p.s.Progress.Point(p.n, name, about)
	p.n++
}

// passed reports whether an earlier part of the run has finished all of the next repeats. It steps over them.
func (p *progress) passed(repeats, steps int) bool {
	if !p.s.Passed(repeats) {
		return false
	}
	p.n += steps
	return true
}

func (p *progress) end() { p.s.Progress.End() }
