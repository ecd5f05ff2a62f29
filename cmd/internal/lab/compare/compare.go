// Package compare sets two archives side by side. For each point that both have, and each figure, it has
// the medians with their 95 % confidence intervals, and the change. It also has the probability that chance
// alone makes such a change. The probability is from the U test of Mann and Whitney, which assumes nothing
// of the distributions. The distribution of a benchmark's figures is not known; a mean with a standard
// deviation would assume one.
//
// Statistics cannot mend a comparison of two machines. Archives whose environments differ are refused unless
// the caller insists, and the differences are part of the result then.
package compare

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchmath"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// MinRepeats is how many repeats of a point each side needs. With fewer the interval of a median has no
// bounds at 95 %.
const MinRepeats = 6

const (
	confidence = 0.95
	alpha      = 0.05 // a change is significant if chance makes one like it less often
)

// Options choose what is compared.
type Options struct {
	Force bool              // compare although the environments differ
	Where map[string]string // labels that points must have
}

// Comparison is the outcome.
type Comparison struct {
	A, B        *archive.Archive
	Points      []Point
	OnlyA       []string // names of points
	OnlyB       []string
	Differences []string // of the environments
	Few         bool     // a point has fewer repeats than MinRepeats
}

// Point is one that both archives have.
type Point struct {
	Name string
	Rows []Row
}

// Row is one figure of a point.
type Row struct {
	Metric archive.Metric
	A, B   Sample
	Delta  float64 // (B − A) / |A|; ±Inf if only A is zero
	P      float64 // of the null hypothesis that both are of one distribution; 1 if it cannot be tested
}

// Sample summarises the repeats of one side. Without enough of them, Low and High are infinite.
type Sample struct {
	Median, Low, High float64
	N                 int
}

// Significant reports whether chance makes such a change less than once in twenty times, and whether there
// were enough repeats to say so.
func (r Row) Significant() bool { return r.enough() && r.P < alpha && r.A.Median != r.B.Median }

func (r Row) enough() bool { return min(r.A.N, r.B.N) >= MinRepeats }

// Verdict says what a significant change is: "better", "worse" or "changed"; "" if there is none.
func (r Row) Verdict() string {
	switch {
	case !r.Significant():
		return ""
	case r.Metric.Better == archive.BetterNeither:
		return "changed"
	case (r.Delta > 0) == (r.Metric.Better == archive.BetterHigher):
		return "better"
	}
	return "worse"
}

// Of compares b with a. The error names the field Force (lab.ErrCannot) if the environments differ, and
// Where (lab.ErrInvalid) if no point of either has these labels. Otherwise it says that there is no point
// in common.
func Of(a, b *archive.Archive, o Options) (*Comparison, error) {
	c := &Comparison{A: a, B: b, Differences: a.Envs.Differences(b.Envs)}
	if len(c.Differences) > 0 && !o.Force {
		return nil, lab.Cannot("Force", "the runs were made in different environments, so their figures say nothing about the program: %s", strings.Join(c.Differences, "; "))
	}
	ours, theirs := chosen(a.Run, o.Where), chosen(b.Run, o.Where)
	if len(ours)+len(theirs) == 0 {
		return nil, lab.Invalid("Where", "no point has these labels")
	}
	others := map[string]*archive.Point{}
	for _, p := range theirs {
		others[p.Key()] = p
	}
	for _, p := range ours {
		other, ok := others[p.Key()]
		if !ok {
			c.OnlyA = append(c.OnlyA, p.Name)
			continue
		}
		delete(others, p.Key())
		c.add(p, other)
	}
	for _, p := range theirs {
		if _, ok := others[p.Key()]; ok {
			c.OnlyB = append(c.OnlyB, p.Name)
		}
	}
	if len(c.Points) == 0 {
		return nil, lab.Cannot("Dir", "%s and %s have no point in common: only points with the same labels compare", a.Dir, b.Dir)
	}
	return c, nil
}

func chosen(r *archive.Run, where map[string]string) []*archive.Point {
	var all []*archive.Point
	for i := range r.Points {
		p, fits := &r.Points[i], true
		for label, value := range where {
			fits = fits && p.Labels[label] == value
		}
		if fits {
			all = append(all, p)
		}
	}
	return all
}

func (c *Comparison) add(a, b *archive.Point) {
	point := Point{Name: a.Name}
	for _, m := range c.A.Run.Metrics {
		if other, ok := c.B.Run.Metric(m.Name); !ok || other.Unit != m.Unit {
			continue
		}
		va, vb := a.Values(m.Name), b.Values(m.Name)
		if len(va) == 0 || len(vb) == 0 {
			continue
		}
		row := rowOf(m, va, vb)
		c.Few = c.Few || !row.enough()
		point.Rows = append(point.Rows, row)
	}
	c.Points = append(c.Points, point)
}

func rowOf(m archive.Metric, va, vb []float64) Row {
	sa, sb := sampleOf(va), sampleOf(vb)
	row := Row{Metric: m, A: summary(sa), B: summary(sb), P: benchmath.AssumeNothing.Compare(sa, sb).P}
	row.Delta = change(row.A.Median, row.B.Median)
	return row
}

func sampleOf(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.Thresholds{CompareAlpha: alpha})
}

func summary(s *benchmath.Sample) Sample {
	of := benchmath.AssumeNothing.Summary(s, confidence)
	return Sample{Median: of.Center, Low: of.Lo, High: of.Hi, N: len(s.Values)}
}

func change(from, to float64) float64 {
	switch {
	case from == to:
		return 0
	case from == 0:
		return math.Inf(1) * math.Copysign(1, to)
	}
	return (to - from) / math.Abs(from)
}

// percent renders a change: "+12.3 %".
func percent(delta float64) string {
	switch {
	case math.IsInf(delta, 1):
		return "from 0"
	case math.IsInf(delta, -1):
		return "from 0 down"
	}
	return strings.Replace(fmt.Sprintf("%+.1f %%", delta*100), "-", "−", 1)
}
