package archive

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Bounds of a run. They are far beyond what a recipe makes, and keep a damaged or hostile file from filling
// the memory of a report.
const (
	maxPoints     = 10_000
	maxRepeats    = 1_000  // of one point
	maxSamples    = 90_000 // of one series: a day of seconds
	maxSeries     = 64     // of one repeat
	maxMetrics    = 500
	maxLabels     = 64
	maxList       = 10_000 // of criteria, references, warnings, phases
	maxTextBytes  = 4_096
	maxNameBytes  = 200
	maxRepeatTime = 30 * 24 * time.Hour
)

var (
	metricName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)
	codeName   = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)
	fileName   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.hlog$`)
)

// Validate returns the first reason why r is not a run: a sentence that says where.
func (r *Run) Validate() error {
	if r.Schema != Schema {
		return fmt.Errorf("schema is %q, and this program knows %q", clip(r.Schema), Schema)
	}
	if !codeName.MatchString(r.Recipe) {
		return fmt.Errorf("recipe is %q, want one lower-case word", clip(r.Recipe))
	}
	if err := r.validateHead(); err != nil {
		return err
	}
	declared := map[string]bool{}
	for _, m := range r.Metrics {
		if err := m.validate(); err != nil {
			return err
		}
		if declared[m.Name] {
			return fmt.Errorf("metric %s is declared twice", m.Name)
		}
		declared[m.Name] = true
	}
	points, keys := map[string]bool{}, map[string]string{}
	for i := range r.Points {
		p := &r.Points[i]
		if err := p.validate(declared); err != nil {
			return fmt.Errorf("point %d (%s): %w", i, clip(p.Name), err)
		}
		if points[p.Name] {
			return fmt.Errorf("two points have the name %q", p.Name)
		}
		if other, ok := keys[p.Key()]; ok {
			return fmt.Errorf("points %q and %q have the same labels", other, p.Name)
		}
		points[p.Name], keys[p.Key()] = true, p.Name
	}
	return r.validateJudgement(points)
}

func (r *Run) validateHead() error {
	switch {
	case len(r.Points) > maxPoints:
		return tooMany("points", len(r.Points), maxPoints)
	case len(r.Metrics) > maxMetrics:
		return tooMany("metrics", len(r.Metrics), maxMetrics)
	case len(r.Config) > maxList:
		return tooMany("settings", len(r.Config), maxList)
	case len(r.Criteria) > maxList:
		return tooMany("criteria", len(r.Criteria), maxList)
	case len(r.References) > maxList:
		return tooMany("references", len(r.References), maxList)
	case r.Ended.Before(r.Began):
		return fmt.Errorf("ended at %v, before it began at %v", r.Ended, r.Began)
	}
	texts := slices.Concat([]string{r.Summary}, r.Command, r.Omitted, slices.Collect(maps.Values(r.Config)), slices.Collect(maps.Keys(r.Config)))
	if err := validateTexts(texts...); err != nil {
		return err
	}
	return validateWarnings(r.Warnings)
}

func (r *Run) validateJudgement(points map[string]bool) error {
	for _, c := range r.Criteria {
		switch {
		case !slices.Contains([]Verdict{Pass, Fail, NotMeasured, Provisional}, c.Verdict):
			return fmt.Errorf("criterion %q: verdict is %q, want pass, fail, not-measured or provisional", clip(c.Name), clip(string(c.Verdict)))
		case c.Point != "" && !points[c.Point]:
			return fmt.Errorf("criterion %q: there is no point %q", clip(c.Name), clip(c.Point))
		case (c.Value == nil) != (c.Verdict == NotMeasured):
			return fmt.Errorf("criterion %q: verdict is %s, value present: %v", clip(c.Name), c.Verdict, c.Value != nil)
		}
		if err := validateFigure("criterion "+clip(c.Name), c.Unit, c.Value); err != nil {
			return err
		}
		if err := validateTexts(c.Name, c.Limit, c.Note); err != nil {
			return err
		}
	}
	for _, f := range r.References {
		if f.Point != "" && !points[f.Point] {
			return fmt.Errorf("reference %q: there is no point %q", clip(f.What), clip(f.Point))
		}
		if err := validateFigure("reference "+clip(f.What), f.Unit, f.Theirs, f.Ours); err != nil {
			return err
		}
		if err := validateTexts(f.Source, f.What, f.Note); err != nil {
			return err
		}
	}
	return nil
}

func (m Metric) validate() error {
	switch {
	case !metricName.MatchString(m.Name) || len(m.Name) > maxNameBytes:
		return fmt.Errorf("metric %q: a name is lower-case words joined by _", clip(m.Name))
	case !slices.Contains(units, m.Unit):
		return fmt.Errorf("metric %s: unknown unit %q", m.Name, clip(string(m.Unit)))
	case !slices.Contains([]Better{BetterHigher, BetterLower, BetterNeither}, m.Better):
		return fmt.Errorf("metric %s: better is %q, want higher, lower or neither", m.Name, clip(string(m.Better)))
	}
	return validateTexts(m.Meaning)
}

func (p *Point) validate(declared map[string]bool) error {
	switch {
	case p.Name == "" || len(p.Name) > maxNameBytes:
		return fmt.Errorf("its name has %d bytes, want 1 to %d", len(p.Name), maxNameBytes)
	case len(p.Labels) == 0 || len(p.Labels) > maxLabels:
		return fmt.Errorf("%d labels, want 1 to %d", len(p.Labels), maxLabels)
	case len(p.Repeats) > maxRepeats:
		return tooMany("repeats", len(p.Repeats), maxRepeats)
	}
	for name, value := range p.Labels {
		if !metricName.MatchString(name) || len(name) > maxNameBytes || value == "" || len(value) > maxNameBytes {
			return fmt.Errorf("label %q=%q: a name is lower-case words joined by _, a value 1 to %d bytes", clip(name), clip(value), maxNameBytes)
		}
	}
	if err := validateTexts(append(slices.Collect(maps.Values(p.Labels)), p.Name)...); err != nil {
		return err
	}
	for i := range p.Repeats {
		if err := p.Repeats[i].validate(declared); err != nil {
			return fmt.Errorf("repeat %d: %w", i, err)
		}
	}
	return validateWarnings(p.Warnings)
}

func (r *Repeat) validate(declared map[string]bool) error {
	switch {
	case r.Order < 0:
		return fmt.Errorf("its order is %d", r.Order)
	case r.Histograms != "" && !fileName.MatchString(r.Histograms):
		return fmt.Errorf("its histograms are in %q, which is not the name of a file beside it that ends in .hlog", clip(r.Histograms))
	case len(r.Phases) > maxList:
		return tooMany("phases", len(r.Phases), maxList)
	case len(r.Series) > maxSeries:
		return tooMany("series", len(r.Series), maxSeries)
	case len(r.Errors) > maxList:
		return tooMany("kinds of errors", len(r.Errors), maxList)
	}
	for name, value := range r.Figures {
		if !declared[name] {
			return fmt.Errorf("figure %q is of a metric that is not declared", clip(name))
		}
		if !finite(value) {
			return fmt.Errorf("figure %s is %v", name, value)
		}
	}
	for _, p := range r.Phases {
		if p.Name == "" || !inRepeat(p.FromSec) || !inRepeat(p.ToSec) || p.ToSec < p.FromSec {
			return fmt.Errorf("phase %q lasts from %v s to %v s", clip(p.Name), p.FromSec, p.ToSec)
		}
		if err := validateTexts(p.Name); err != nil {
			return err
		}
	}
	for _, s := range r.Series {
		if err := s.validate(declared); err != nil {
			return fmt.Errorf("series of %q: %w", clip(s.Source), err)
		}
	}
	if err := validateTexts(slices.Collect(maps.Keys(r.Errors))...); err != nil {
		return err
	}
	return validateWarnings(r.Warnings)
}

func (s Series) validate(declared map[string]bool) error {
	if s.Source == "" || len(s.Source) > maxNameBytes || validateTexts(s.Source) != nil {
		return fmt.Errorf("its source has %d bytes, want 1 to %d of UTF-8 without control characters", len(s.Source), maxNameBytes)
	}
	if !inRepeat(s.FromSec) || !inRepeat(s.IntervalSec) || s.IntervalSec == 0 {
		return fmt.Errorf("it begins at %v s with intervals of %v s", s.FromSec, s.IntervalSec)
	}
	length := -1
	for name, column := range s.Columns {
		switch {
		case !declared[name]:
			return fmt.Errorf("column %q is of a metric that is not declared", clip(name))
		case len(column) > maxSamples:
			return tooMany("samples", len(column), maxSamples)
		case length >= 0 && len(column) != length:
			return fmt.Errorf("one column has %d samples, and %s has %d", length, name, len(column))
		}
		length = len(column)
		for i, x := range column {
			if math.IsInf(x, 0) {
				return fmt.Errorf("sample %d of %s is %v", i, name, x)
			}
		}
	}
	return nil
}

func validateWarnings(warnings []Warning) error {
	if len(warnings) > maxList {
		return tooMany("warnings", len(warnings), maxList)
	}
	for _, w := range warnings {
		if !codeName.MatchString(w.Code) || w.Text == "" {
			return fmt.Errorf("warning %q: want a code of lower-case words joined by - and a sentence", clip(w.Code))
		}
		if err := validateTexts(w.Code, w.Text); err != nil {
			return err
		}
	}
	return nil
}

func validateFigure(of string, unit Unit, values ...*float64) error {
	if !slices.Contains(units, unit) {
		return fmt.Errorf("%s: unknown unit %q", of, clip(string(unit)))
	}
	for _, v := range values {
		if v != nil && !finite(*v) {
			return fmt.Errorf("%s: a value is %v", of, *v)
		}
	}
	return nil
}

func validateTexts(texts ...string) error {
	for _, t := range texts {
		if len(t) > maxTextBytes || !utf8.ValidString(t) {
			return fmt.Errorf("the text %q has %d bytes, want at most %d of UTF-8", clip(t), len(t), maxTextBytes)
		}
		if strings.ContainsFunc(t, isControl) {
			return fmt.Errorf("the text %q has a control character", clip(t))
		}
	}
	return nil
}

// isControl reports what has no place in a page, nor on a terminal.
func isControl(c rune) bool { return unicode.IsControl(c) && c != '\n' && c != '\t' }

func tooMany(what string, have, most int) error {
	return fmt.Errorf("%d %s, more than %d", have, what, most)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }

func inRepeat(seconds float64) bool { return seconds >= 0 && seconds <= maxRepeatTime.Seconds() }

// clip shortens a text for a message.
func clip(s string) string {
	if len(s) > 60 {
		return s[:57] + "..."
	}
	return s
}
