package recipe

import (
	"fmt"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
	"github.com/millrace/millrace/cmd/internal/lab/experiment"
)

// demand is what a recipe asks of the median of a figure, or of its ratio by that of another point.
type demand struct {
	name      string
	metric    archive.Metric
	point, by string // by: "", or the other point
	limit     limit
}

// limit is the bound of a demand.
type limit struct {
	text        string // for people
	holds       func(float64) bool
	provisional string // why it gives no verdict yet; "": it does
}

// The limits, with what a reader should know of the number.
func atMost(x float64, note string) limit {
	return limit{text: fmt.Sprintf("≤ %v%s", x, note), holds: experiment.AtMost(x)}
}

func atLeast(x float64, note string) limit {
	return limit{text: fmt.Sprintf("≥ %v%s", x, note), holds: experiment.AtLeast(x)}
}

func below(x float64, note string) limit {
	return limit{text: fmt.Sprintf("< %v%s", x, note), holds: func(value float64) bool { return value < x }}
}

// chosen is a limit that was chosen and not measured. It gives no verdict until someone has measured on a
// machine that does nothing else, and says of which scatter the limit keeps clear.
func chosen(l limit) limit {
	l.provisional = "provisional: the limit was chosen; no run on a machine of its own has measured the scatter yet"
	return l
}

var zero = atMost(0, "").says("0")

// says is the limit in other words.
func (l limit) says(text string) limit {
	l.text = text
	return l
}

// judge judges demands of figures.
func judge(s *experiment.Session, demands ...demand) {
	for _, d := range demands {
		value, ok, unit, missing := 0.0, false, d.metric.Unit, "the figure was not measured"
		if d.by == "" {
			value, ok = s.Median(d.point, d.metric.Name)
		} else {
			value, ok = s.Ratio(d.metric.Name, d.point, d.by)
			unit, missing = archive.UnitRatio, "one of the two points was not measured"
		}
		judgeValue(s, d.name, d.point, unit, d.limit, value, ok, missing)
	}
}

// judgeValue judges a value that a recipe has worked out.
func judgeValue(s *experiment.Session, name, point string, unit archive.Unit, l limit, value float64, measured bool, missing string) {
	s.Judge(experiment.Criterion{Name: name, Point: point, Limit: l.text, Unit: unit, Holds: l.holds, Provisional: l.provisional}, value, measured, missing)
}

// sumOf adds up a figure over the repeats of a point; ok is false if one of them has not measured it.
func sumOf(s *experiment.Session, point string, m archive.Metric, repeats int) (sum float64, ok bool) {
	values := s.Values(point, m.Name)
	for _, x := range values {
		sum += x
	}
	return sum, len(values) > 0 && len(values) == repeats
}

// refer puts a source's ratio beside ours, of two points. theirs is nil if the source has no number.
func refer(s *experiment.Session, source, what string, theirs *float64, m archive.Metric, point, by, note string) {
	r := archive.Reference{Source: source, What: what, Unit: archive.UnitRatio, Theirs: theirs, Note: note}
	if ours, ok := s.Ratio(m.Name, point, by); ok {
		r.Ours, r.Point = &ours, point
	}
	s.Archive.References = append(s.Archive.References, r)
}
