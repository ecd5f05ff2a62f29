// Package recipe has the experiments of the sources, and our own. The sources' are the dissertation's
// benchmark and its open questions, rafttoy's comparison of pipelines, and the comparison of Apache Ratis's
// flushes. Our own are of the typed API, of many groups, of objects and of snapshots.
//
// A recipe is a design (recipe.go): one value with a question, a plan for each size, metrics, omissions,
// and functions that measure and judge. A new one is such a value, a few functions, and its name in All.
// run.go has what all of them use to measure, judge.go what they use to judge.
package recipe

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
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

// design is what makes a recipe: P is its plan, all that depends on the size.
type design[P any] struct {
	name, question, source string

	hosts   int // of the largest cluster in this process
	plan    func(Size) P
	about   func(P) time.Duration
	needMiB func(Size) int
	omits   omissions
	metrics []archive.Metric // the columns of its own, beside the standard ones
	steps   func(P) int      // of the progress; nil: measure begins it

	measure func(context.Context, *run, P) error // puts the repeats of each point: the rows
	judge   func(*experiment.Session, P)         // the demands, and the source's figures beside ours
}

// recipe returns the recipe of a design. Its Run is how all of them run.
func (d design[P]) recipe() Recipe {
	return Recipe{
		Name: d.name, Question: d.question, Source: d.source, Hosts: d.hosts, NeedMiB: d.needMiB,
		About: func(size Size) time.Duration { return d.about(d.plan(size)) },
		Run: func(ctx context.Context, s *experiment.Session, size Size) error {
			plan := d.plan(size)
			for _, text := range d.omits.of(size) {
				s.Omit("%s", text)
			}
			s.Declare(d.metrics...)
			if d.steps != nil {
				s.Progress.Begin(d.steps(plan))
				defer s.Progress.End()
			}
			if err := d.measure(ctx, &run{Session: s}, plan); err != nil {
				return err
			}
			d.judge(s, plan)
			return nil
		},
	}
}

// omissions are what a run leaves out, by its size. If nothing else is said, a short run leaves out what a
// full one does, and a glance what a short one does. Long leaves out what every run does.
type omissions struct {
	full, short, glance string
	always              []string
}

func (o omissions) of(size Size) []string {
	text := pick(size, o.full, cmp.Or(o.short, o.full), cmp.Or(o.glance, o.short, o.full))
	if text == "" || size == Long {
		return o.always
	}
	return append([]string{text}, o.always...)
}

// All returns the recipes in the order of the list.
func All() []Recipe {
	return []Recipe{
		rafttoy.recipe(), logcabin.recipe(), ratis.recipe(), b0.recipe(), b1.recipe(), b2.recipe(), b3.recipe(), b4.recipe(), b5.recipe(), b6.recipe(),
		nextBatch.recipe(), flush.recipe(), typed.recipe(), manyGroups.recipe(), largeObjects.recipe(), takenSnapshots.recipe(),
	}
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

// Estimate says how long a recipe will take and what is kept if it is interrupted.
func (r Recipe) Estimate(s Size) string {
	return fmt.Sprintf("%s: about %v on two cores, with %d MiB of disk space. Ctrl-C ends it, and keeps what was finished.", r.Name, r.About(s).Round(5*time.Second), r.NeedMiB(s))
}
