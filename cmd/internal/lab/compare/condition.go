package compare

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// Condition is a change that is not accepted. "p99 > +10%" is broken if p99 has risen by more than a tenth,
// "throughput < -5%" if the throughput has fallen by more than a twentieth.
type Condition struct {
	Metric string // as written
	Rise   bool   // true: a rise is not accepted; false: a fall
	Limit  float64
	text   string
}

// String returns the condition as it was written.
func (c Condition) String() string { return c.text }

var conditionForm = regexp.MustCompile(`^\s*([a-z][a-z0-9_.]*)\s*([<>])\s*([+-]?[0-9]+(?:\.[0-9]+)?)\s*%\s*$`)

const maxPercent = 1e6

// ParseCondition reads a condition. It is strict and refuses what could be read in two ways: a condition
// that never breaks looks as if it held.
func ParseCondition(text string) (Condition, error) {
	m := conditionForm.FindStringSubmatch(text)
	if m == nil {
		return Condition{}, fmt.Errorf("%q is no condition; write one like 'p99 > +10%%' or 'throughput < -5%%'", text)
	}
	percent, err := strconv.ParseFloat(m[3], 64)
	if err != nil || percent > maxPercent || percent < -100 {
		return Condition{}, fmt.Errorf("%q: %s %% is not between -100 %% and %.0f %%", text, m[3], maxPercent)
	}
	c := Condition{Metric: m[1], Rise: m[2] == ">", Limit: percent / 100, text: strings.Join(strings.Fields(text), " ")}
	switch {
	case c.Rise && percent < 0:
		return Condition{}, fmt.Errorf("%q would be broken by what has not changed; > needs a rise, such as '%s > +10%%'", text, c.Metric)
	case !c.Rise && percent > 0, !c.Rise && m[3][0] == '+':
		return Condition{}, fmt.Errorf("%q would be broken by what has not changed; < needs a fall, such as '%s < -10%%'", text, c.Metric)
	}
	return c, nil
}

// suffixes are the units that may be left out of a metric's name in a condition.
var suffixes = []string{"_us_per_op", "_bytes_per_op", "_per_op", "_per_sec", "_us", "_bytes", "_s"}

// resolve finds the metric that a condition names: by its name, by its name without the unit, or, for the
// throughput and for p99.9, as tables call it.
func (c Condition) resolve(metrics []archive.Metric) (archive.Metric, error) {
	name := strings.ReplaceAll(c.Metric, ".", "")
	if name == "throughput" {
		name = archive.OpsPerSec.Name
	}
	var found []archive.Metric
	for _, m := range metrics {
		if m.Name == name {
			return m, nil
		}
		for _, suffix := range suffixes {
			if m.Name == name+suffix {
				found = append(found, m)
			}
		}
	}
	var names []string
	for _, m := range found {
		names = append(names, m.Name)
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		for _, m := range metrics {
			names = append(names, m.Name)
		}
		slices.Sort(names)
		return archive.Metric{}, fmt.Errorf("%q: there is no figure %s; there are %s", c.text, c.Metric, strings.Join(names, ", "))
	}
	return archive.Metric{}, fmt.Errorf("%q: %s may be %s; write the whole name", c.text, c.Metric, strings.Join(names, " or "))
}

// Finding is what a condition says of one point.
type Finding struct {
	Condition Condition
	Point     string
	Row       Row
	Broken    bool
	Undecided bool // there are too few repeats to say
}

// Judge applies conditions to all points. A condition is broken if the change of the medians is beyond its
// limit and significant. A change that chance makes once in ten runs must not stop a release. An error is
// about a condition that names no figure of any point.
func (c *Comparison) Judge(conditions []Condition) ([]Finding, error) {
	var all []Finding
	for _, condition := range conditions {
		m, err := condition.resolve(c.figures())
		if err != nil {
			return nil, err
		}
		for _, p := range c.Points {
			for _, row := range p.Rows {
				if row.Metric.Name == m.Name {
					all = append(all, condition.judge(p.Name, row))
				}
			}
		}
	}
	return all, nil
}

// figures are the metrics that at least one point in common has.
func (c *Comparison) figures() []archive.Metric {
	var all []archive.Metric
	for _, p := range c.Points {
		for _, row := range p.Rows {
			if !slices.Contains(all, row.Metric) {
				all = append(all, row.Metric)
			}
		}
	}
	return all
}

func (c Condition) judge(point string, row Row) Finding {
	beyond := row.Delta > c.Limit
	if !c.Rise {
		beyond = row.Delta < c.Limit
	}
	return Finding{Condition: c, Point: point, Row: row, Broken: beyond && row.Significant(), Undecided: !row.enough()}
}
