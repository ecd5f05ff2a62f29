package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/report"
	"github.com/millrace/millrace/cmd/internal/lab/rig"
)

// Job is one call of `lab measure`, `lab sweep` or `lab load`. It is values only, apart from
// Options.Progress and Options.Elsewhere. So a program that lacks components can hand it to a program that
// has them (handover.go).
type Job struct {
	Options Options
	Plans   []Plan // at least one; they differ in dimensions only, and have the same number of repeats
	Sweep   *Sweep // nil: every point of the plans is measured
}

// Points lists what one round measures. What plans differ in is in the names.
func (j Job) Points(foreign rig.Foreign) (all []Point) {
	for _, plan := range j.Plans {
		words := j.words(plan)
		for _, p := range plan.Points(foreign) {
			p.Words = words
			if j.Options.Afar {
				p.Setup.Processes = "remote"
			}
			all = append(all, p.Named(p.Labels[archive.LabelPipeline]))
		}
	}
	return all
}

// dimensions are what the plans of a job may differ in, as the names of points tell it.
var dimensions = []func(Plan) string{
	func(p Plan) string { return "log " + p.Log },
	func(p Plan) string { return "engine " + p.Engine },
	func(p Plan) string { return "transport " + p.Transport },
	func(p Plan) string { return report.Plural(p.Groups, "group") },
	func(p Plan) string { return report.Plural(p.Hosts, "node") },
	func(p Plan) string { return report.Size(p.ValueBytes) },
	func(p Plan) string { return fmt.Sprintf("fsync delay %v", p.FsyncDelay) },
	func(p Plan) string { return fmt.Sprintf("disk %d B/s", p.DiskBandwidth) },
	func(p Plan) string { return fmt.Sprintf("network delay %v", p.NetDelay) },
}

// words names what a plan has and other plans have not.
func (j Job) words(plan Plan) string {
	var words []string
	for _, told := range dimensions {
		if slices.ContainsFunc(j.Plans, func(p Plan) bool { return told(p) != told(plan) }) {
			words = append(words, told(plan))
		}
	}
	return strings.Join(words, ", ")
}

// Run does the job and writes to out what there is for people, also of a job that was interrupted.
func (j Job) Run(ctx context.Context, out io.Writer, foreign rig.Foreign) error {
	return RunAndWrite(ctx, j.Options, out, func(ctx context.Context, s *Session) error {
		if j.Sweep != nil {
			return j.sweep(ctx, out, s, foreign)
		}
		return s.MeasureAll(ctx, j.Points(foreign), j.Plans[0].Repeats)
	})
}

// RunAndWrite is Run, and writes the session to out. If the run to resume is complete already, it says so.
func RunAndWrite(ctx context.Context, o Options, out io.Writer, measure func(context.Context, *Session) error) error {
	s, err := Run(ctx, o, measure)
	if errors.Is(err, errComplete) {
		return writeComplete(out, o.Out)
	}
	if s == nil {
		return err
	}
	return errors.Join(s.WriteText(out), err)
}

// pointsOfSweep is about how many rates a sweep tries.
const pointsOfSweep = 20

func (j Job) sweep(ctx context.Context, out io.Writer, s *Session, foreign rig.Foreign) error {
	points := j.Points(foreign)
	s.Progress.Begin(pointsOfSweep * len(points))
	defer s.Progress.End()
	n := 0
	for _, p := range points {
		w, pipeline := *j.Sweep, p.Labels[archive.LabelPipeline]
		name := pipeline
		if p.Words != "" {
			name = p.Words + ", " + pipeline
		}
		w.Point = p
		k, err := s.Sweep(ctx, w, pipeline, func(_ int, p Point) {
			s.Progress.Point(n, p.Name, p.Warmup.Max+p.Length)
			n++
		})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(out, "%s: %v\n", name, k); err != nil {
			return err
		}
		judge := func(what string, rate float64) {
			s.Judge(Criterion{Name: name + ": " + what, Limit: "> 0", Unit: KneeRate.Unit, Holds: func(x float64) bool { return x > 0 }}, rate, true, "")
		}
		judge("highest rate without saturation", k.Rate)
		if w.Limit > 0 {
			judge(fmt.Sprintf("highest rate with p99 below %v", w.Limit), k.Limited)
		}
	}
	return nil
}
