// Package experiment runs what the lab was asked for and writes it down. It puts clusters of named
// components (package rig) under load (package load), and writes into the directory of a run (package
// archive).
//
//	session.go   one call of the lab: its directory, its archive, its end, interrupted or not
//	resume.go    the rest of a run that was cut short
//	plan.go      components by name; combinations that cannot be are refused
//	point.go     one target under one load, through all phases
//	abroad.go    a point whose cluster runs in other processes
//	figures.go   what a load has measured, as figures, series and histograms
//	sampler.go   what is sampled once a second
//	impact.go    what an event did to the clients
//	sweep.go     the highest rate that a target bears
//	text.go      the table for people
package experiment

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/cmd/internal/lab/report"
)

// Options are what every call of the lab has.
type Options struct {
	Recipe   string // one word: the name in the archive
	Summary  string // the question, in a sentence
	Command  []string
	Config   map[string]string
	Seed     uint64
	Dir      string   // where the working directory is made; "" lets the lab choose
	Out      string   // directory of the archive; "": none is written
	Resume   bool     // the run in Out was cut short: measure what is missing
	Aside    []string // names in Config that say nothing of what is measured: a part that resumes may have others
	Hosts    int      // of the largest cluster in this process
	NeedMiB  int      // free space that the run needs beside the reserve
	Probe    time.Duration
	Progress report.Progress `json:"-"`
	// Elsewhere is where clusters run. nil: in this process. Sessions with events need that.
	Elsewhere Elsewhere `json:"-"`
	// Afar says that the hosts run on other machines, so this machine's disk does not matter. A label of
	// the points says it, too.
	Afar bool
}

// Session is one call of the lab. Its methods belong to the goroutine that Run calls back on.
type Session struct {
	Options
	Archive archive.Run
	Env     archive.Environments
	Work    lab.WorkDir

	writer   *archive.Writer // nil: no archive
	points   map[string]int  // index by name
	order    int             // of the next repeat
	finished int             // repeats that earlier parts of the run have finished
}

// Run makes a session and calls measure with it. Whatever was measured is saved, also when ctx ends before
// measure has: the run is marked as partial then, and the error is ctx's cause. With any other error of
// measure the archive has what was finished before, also marked as partial. If the process is killed, the
// archive has what was finished by then.
//
// With Options.Resume the session continues what the archive has (resume.go).
func Run(ctx context.Context, o Options, measure func(context.Context, *Session) error) (_ *Session, err error) {
	s := &Session{Options: o, points: map[string]int{}}
	s.Archive = archive.Run{
		Recipe: o.Recipe, Summary: o.Summary, Command: o.Command, Config: o.Config, Seed: o.Seed,
		Began: time.Now().UTC(), Partial: true,
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(); err != nil {
		return nil, err
	}
	defer load.AddProcessors(o.Hosts)()
	need := lab.ReservedBytes + uint64(o.NeedMiB)<<20 + ProbeBytes
	interrupted, err := lab.InWorkDir(ctx, o.Dir, need, func(ctx context.Context, work lab.WorkDir) error {
		if err := s.enter(ReadMachine(work.Parent)); err != nil {
			return err
		}
		s.Work = work
		if err := s.begin(ctx); err != nil {
			return err
		}
		if err := measure(ctx, s); err != nil {
			return err
		}
		return s.steppedOver()
	})
	if s.Work.Path == "" {
		return nil, err // nothing was tried
	}
	s.Archive.Partial = err != nil
	if err != nil {
		reason := err.Error()
		text := "The run was cut short: " + strings.ToValidUTF8(reason[:min(len(reason), maxReasonBytes)], "") + "."
		if interrupted {
			text = "The run was interrupted: what follows is what was finished."
		}
		s.Warn(archive.WarnPartial, "%s", text)
	}
	EndOfRun(s.here())
	return s, errors.Join(err, s.Save())
}

// begin saves a run in which nothing is measured yet, or nothing more, and looks at the machine.
func (s *Session) begin(ctx context.Context) error {
	if err := s.Save(); err != nil {
		return err
	}
	if s.Probe > 0 {
		s.Progress.Phase("the machine")
		if err := ProbeMachine(ctx, s.here(), s.Work.Path, s.Probe); err != nil {
			return err
		}
	}
	for _, w := range MachineWarnings(*s.here()) {
		if !s.Afar || w.Code == archive.WarnBusy {
			s.Warn(w.Code, "%s", w.Text)
		}
	}
	return nil
}

// maxReasonBytes is how much of an error is kept in the archive.
const maxReasonBytes = 1000

// Save writes the archive as it is now, if there is one.
func (s *Session) Save() error {
	s.Archive.Ended = time.Now().UTC()
	s.tellParts()
	if s.writer == nil {
		return nil
	}
	return s.writer.Save(&s.Archive, s.Env)
}

// Warn adds a warning about the whole run, each code and text once.
func (s *Session) Warn(code, format string, args ...any) {
	w := archive.Warning{Code: code, Text: fmt.Sprintf(format, args...)}
	for _, have := range s.Archive.Warnings {
		if have == w {
			return
		}
	}
	s.Archive.Warnings = append(s.Archive.Warnings, w)
}

// Omit says what a shortened run leaves out.
func (s *Session) Omit(format string, args ...any) {
	s.Archive.Omitted = append(s.Archive.Omitted, fmt.Sprintf(format, args...))
}

// Declare adds metrics of the recipe's own.
func (s *Session) Declare(metrics ...archive.Metric) {
	for _, m := range metrics {
		if _, known := s.Archive.Metric(m.Name); !known {
			s.Archive.Metrics = append(s.Archive.Metrics, m)
		}
	}
}

// Point returns the point of a name, which is made with the labels if it is new. The result holds until the
// next call.
func (s *Session) Point(name string, labels map[string]string) *archive.Point {
	i, known := s.points[name]
	if !known {
		i = len(s.Archive.Points)
		s.points[name] = i
		s.Archive.Points = append(s.Archive.Points, archive.Point{Name: name, Labels: maps.Clone(labels)})
	}
	return &s.Archive.Points[i]
}

// Median returns the median of a figure of a point; ok is false if it was not measured.
func (s *Session) Median(point, metric string) (float64, bool) {
	i, known := s.points[point]
	if !known {
		return 0, false
	}
	return s.Archive.Points[i].Median(metric)
}

// Values returns a figure of all repeats of a point that have it.
func (s *Session) Values(point, metric string) []float64 {
	i, known := s.points[point]
	if !known {
		return nil
	}
	return s.Archive.Points[i].Values(metric)
}

// Add appends a repeat to a point and saves the run so far.
func (s *Session) Add(name string, labels map[string]string, r archive.Repeat) error {
	s.Put(name, labels, r)
	return s.Save()
}

// Put is Add without saving, for many points that are known at once. It panics if an earlier part has
// finished that repeat: the caller has not asked Finished.
func (s *Session) Put(name string, labels map[string]string, r archive.Repeat) {
	if s.hasFinished() {
		panic(fmt.Sprintf("%s: repeat %d is finished, and was measured again", name, s.order))
	}
	r.Order = s.order
	s.order++
	p := s.Point(name, labels)
	p.Repeats = append(p.Repeats, r)
}

// repeatSeed returns the seed of the next repeat.
func (s *Session) repeatSeed() uint64 { return s.Seed*1_000_003 + uint64(s.order) }

// InFreshDir calls f with a new directory, which is gone afterwards.
func (s *Session) InFreshDir(f func(dir string) error) error {
	_, err := lab.InFreshDir(s.Work, func(dir string) (struct{}, error) { return struct{}{}, f(dir) })
	return err
}

// Shuffled calls f for every item in every round. Each round has a new random order, so drift of the
// machine does not always hit the same item.
func Shuffled[T any](s *Session, rounds int, items []T, f func(round int, item T) error) error {
	random := rand.New(rand.NewPCG(s.Seed, 4))
	for round := range rounds {
		for _, i := range random.Perm(len(items)) {
			if err := f(round, items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}
