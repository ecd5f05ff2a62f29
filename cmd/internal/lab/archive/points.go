package archive

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Key is the identity of a point: its labels, sorted.
func (p *Point) Key() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p.Labels)) {
		b.WriteString(name + "=" + p.Labels[name] + "\n")
	}
	return b.String()
}

// Values returns a figure of all repeats that were not cut short and have it, in the order of the repeats.
func (p *Point) Values(metric string) []float64 {
	var values []float64
	for _, r := range p.Repeats {
		if v, ok := r.Figures[metric]; ok && !r.Partial {
			values = append(values, v)
		}
	}
	return values
}

// Median returns the median of a figure over the repeats (of an even number, the mean of the middle two); ok
// is false if no repeat has it.
func (p *Point) Median(metric string) (median float64, ok bool) {
	values := slices.Sorted(slices.Values(p.Values(metric)))
	if len(values) == 0 {
		return 0, false
	}
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2, true
}

// Range returns the extremes of a figure over the repeats; ok is false if no repeat has it.
func (p *Point) Range(metric string) (low, high float64, ok bool) {
	values := p.Values(metric)
	if len(values) == 0 {
		return 0, 0, false
	}
	return slices.Min(values), slices.Max(values), true
}

// Typical returns the repeat whose figure is the median (of an even number, the lower): the one whose series
// and histograms a report shows. It is nil if no repeat has the figure.
func (p *Point) Typical(metric string) *Repeat {
	var with []*Repeat
	for i := range p.Repeats {
		if _, ok := p.Repeats[i].Figures[metric]; ok && !p.Repeats[i].Partial {
			with = append(with, &p.Repeats[i])
		}
	}
	if len(with) == 0 {
		return nil
	}
	slices.SortStableFunc(with, func(a, b *Repeat) int { return cmp.Compare(a.Figures[metric], b.Figures[metric]) })
	return with[(len(with)-1)/2]
}

// AllWarnings returns the warnings of the point and of its repeats, each code once, in order of appearance.
func (p *Point) AllWarnings() []Warning {
	all := slices.Clone(p.Warnings)
	for _, r := range p.Repeats {
		all = append(all, r.Warnings...)
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(all, func(w Warning) bool {
		double := seen[w.Code]
		seen[w.Code] = true
		return double
	})
}
