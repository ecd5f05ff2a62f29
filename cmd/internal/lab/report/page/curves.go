package page

import (
	"cmp"
	"math"
	"slices"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// Curve is a named line of a chart. Its places are medians over the repeats, with the extremes beside them.
type Curve struct {
	Name   string
	Places []Place
}

// Place is one point of a curve. NaN in Y is a gap.
type Place struct {
	X   float64 `json:"x"`
	Y   float64 `json:"y"`
	Low float64 `json:"low"`
	Top float64 `json:"high"`
}

// By returns a metric over a numeric label: a curve for each group of points that differ in that label alone.
// A group that has one point only makes no curve.
func (v *View) By(label string, m archive.Metric) []Curve {
	var curves []Curve
	for _, g := range v.Groups(label) {
		c := Curve{Name: g.Name}
		for _, p := range g.Points {
			x, isNumber := Number(p.Labels[label])
			y, ok := p.Median(m.Name)
			if !isNumber || !ok {
				continue
			}
			low, high, _ := p.Range(m.Name)
			c.Places = append(c.Places, Place{X: x, Y: y, Low: low, Top: high})
		}
		slices.SortStableFunc(c.Places, func(a, b Place) int { return cmp.Compare(a.X, b.X) })
		if len(c.Places) > 1 {
			curves = append(curves, c)
		}
	}
	return curves
}

// Knee returns a latency over the throughput at which it was measured, a curve for each family in order of
// the load. The knee is where a curve turns up. If none has two points, there is no curve.
func (v *View) Knee(m archive.Metric) []Curve {
	var curves []Curve
	if !slices.ContainsFunc(v.Families, func(f Family) bool { return len(f.Points) > 1 }) {
		return nil
	}
	for _, f := range v.Families {
		c := Curve{Name: f.Name}
		for _, p := range f.Points {
			x, ok1 := p.Median(archive.OpsPerSec.Name)
			y, ok2 := p.Median(m.Name)
			if !ok1 || !ok2 {
				continue
			}
			low, high, _ := p.Range(m.Name)
			c.Places = append(c.Places, Place{X: x, Y: y, Low: low, Top: high})
		}
		if len(c.Places) > 0 {
			curves = append(curves, c)
		}
	}
	return curves
}

// Percentiles returns the latencies of each standing's operations over N = 1/(1 − share).
func Percentiles(standings []Standing) []Curve {
	var curves []Curve
	for _, s := range standings {
		for _, o := range s.Operations {
			c := Curve{Name: s.Name()}
			if len(s.Operations) > 1 {
				c.Name += ", " + o.Tag
			}
			for _, q := range Quantiles(o.Measured) {
				c.Places = append(c.Places, Place{X: q.N, Y: q.Us})
			}
			if len(c.Places) > 0 {
				curves = append(curves, c)
			}
		}
	}
	return curves
}

// PercentileTicks are the shares that a percentile plot labels, by N.
func PercentileTicks() []struct {
	N     float64
	Label string
} {
	return []struct {
		N     float64
		Label string
	}{
		{1, "0 %"}, {2, "50 %"}, {10, "90 %"}, {100, "99 %"}, {1e3, "99.9 %"}, {1e4, "99.99 %"}, {1e5, "99.999 %"}, {1e6, "99.9999 %"},
	}
}

// Timeline is one metric over the time of the standings' repeats.
type Timeline struct {
	Metric archive.Metric
	Curves []Curve
}

// Timelines returns the series of the standings, one timeline for each metric, in the order of the run's
// metrics. A series about a part (a member, the load) is a curve of its own.
func (v *View) Timelines(standings []Standing) []Timeline {
	var all []Timeline
	for _, m := range v.Run.Metrics {
		t := Timeline{Metric: m}
		for _, s := range standings {
			for _, series := range s.Repeat.Series {
				column, ok := series.Columns[m.Name]
				if !ok {
					continue
				}
				c := Curve{Name: s.Name()}
				if series.Source != archive.SourceAll {
					c.Name += ", " + series.Source
				}
				for i, y := range column {
					c.Places = append(c.Places, Place{X: series.FromSec + (float64(i)+0.5)*series.IntervalSec, Y: y})
				}
				c.Places = thin(c.Places)
				t.Curves = append(t.Curves, c)
			}
		}
		if len(t.Curves) > 0 {
			all = append(all, t)
		}
	}
	return all
}

// maxPlaces bounds the places of a curve over time. A chart is half as many pixels wide.
const maxPlaces = 1200

// thin keeps the least and the greatest of neighbours, in their order, until there are at most maxPlaces: a
// spike of one sample in a day stays visible, which a mean would hide. A gap stays a gap if it is as long as
// the neighbours together.
func thin(places []Place) []Place {
	if len(places) <= maxPlaces {
		return places
	}
	each := (2*len(places) + maxPlaces - 1) / maxPlaces
	var kept []Place
	for neighbours := range slices.Chunk(places, each) {
		low, high := -1, -1
		for i, p := range neighbours {
			if math.IsNaN(p.Y) {
				continue
			}
			if low < 0 || p.Y < neighbours[low].Y {
				low = i
			}
			if high < 0 || p.Y > neighbours[high].Y {
				high = i
			}
		}
		switch {
		case low < 0:
			kept = append(kept, neighbours[0])
		case low == high:
			kept = append(kept, neighbours[low])
		default:
			kept = append(kept, neighbours[min(low, high)], neighbours[max(low, high)])
		}
	}
	return kept
}

// Phases returns the phases of a standing's repeats, if those of all standings are alike: within a tenth of
// the repeat. Otherwise one band cannot stand for all, and there are none.
func Phases(standings []Standing) []archive.Phase {
	phases := standings[0].Repeat.Phases
	for _, s := range standings[1:] {
		other := s.Repeat.Phases
		if len(other) != len(phases) {
			return nil
		}
		for i, p := range phases {
			slack := 0.1 * max(p.ToSec, other[i].ToSec)
			if p.Name != other[i].Name || math.Abs(p.FromSec-other[i].FromSec) > slack || math.Abs(p.ToSec-other[i].ToSec) > slack {
				return nil
			}
		}
	}
	return phases
}
