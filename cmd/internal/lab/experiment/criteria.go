package experiment

import (
	"slices"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// Criterion is a demand on one value.
type Criterion struct {
	Name  string
	Point string // that the value is of; "" for the run
	Limit string // for people
	Unit  archive.Unit
	Holds func(value float64) bool
	// Provisional says why the limit gives no verdict yet; "": it does.
	Provisional string
}

// Judge evaluates a criterion. A value that was not measured gets the reason instead of a verdict. So does a
// figure of time that does not hold where the machine was busy, or the point had not settled: it says nothing
// about what was measured. A count fails whatever the machine did. With a provisional limit it
// neither passes nor fails: the note is the reason.
func (s *Session) Judge(c Criterion, value float64, measured bool, why string) {
	of := archive.Criterion{Name: c.Name, Limit: c.Limit, Unit: c.Unit, Verdict: archive.NotMeasured, Note: why}
	if _, known := s.points[c.Point]; known {
		of.Point = c.Point
	}
	switch {
	case measured && c.Provisional != "":
		of.Value, of.Verdict, of.Note = &value, archive.Provisional, c.Provisional
	case measured:
		of.Value, of.Verdict, of.Note = &value, archive.Fail, ""
		if c.Holds(value) {
			of.Verdict = archive.Pass
		} else if disturbed := s.disturbed(c.Point); len(disturbed) > 0 && c.Unit != archive.UnitCount {
			of.Verdict, of.Value = archive.NotMeasured, nil
			of.Note = cell(archive.Metric{Unit: c.Unit}, value) + " under " + strings.Join(disturbed, ", ")
		}
	}
	s.Archive.Criteria = append(s.Archive.Criteria, of)
}

// disturbing are the warnings under which a figure of time may be the machine's.
var disturbing = []string{archive.WarnBusy, archive.WarnClientCPU, archive.WarnGeneratorBound, archive.WarnSaturated, archive.WarnLeaderMoved, archive.WarnNotSteady, archive.WarnDrift}

// disturbed returns the codes of the warnings under which a point was measured, each once.
func (s *Session) disturbed(point string) (codes []string) {
	all := slices.Clone(s.Archive.Warnings)
	if i, known := s.points[point]; known {
		all = append(all, s.Archive.Points[i].AllWarnings()...)
	}
	for _, w := range all {
		if slices.Contains(disturbing, w.Code) && !slices.Contains(codes, w.Code) {
			codes = append(codes, w.Code)
		}
	}
	return codes
}

// AtMost and AtLeast are the usual demands.
func AtMost(limit float64) func(float64) bool  { return func(x float64) bool { return x <= limit } }
func AtLeast(limit float64) func(float64) bool { return func(x float64) bool { return x >= limit } }

// Ratio returns the ratio of the medians of two points; ok is false if either is missing.
func (s *Session) Ratio(metric, of, by string) (ratio float64, ok bool) {
	a, have := s.Median(of, metric)
	b, too := s.Median(by, metric)
	if !have || !too || b == 0 {
		return 0, false
	}
	return a / b, true
}

// Reference puts a source's figure beside ours, the median of a point. theirs is nil if the source has no
// number.
func (s *Session) Reference(source, what string, unit archive.Unit, theirs *float64, point, metric, note string) {
	r := archive.Reference{Source: source, What: what, Unit: unit, Theirs: theirs, Note: note}
	if ours, ok := s.Median(point, metric); ok {
		r.Ours, r.Point = &ours, point
	}
	s.Archive.References = append(s.Archive.References, r)
}
