package regression

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/millrace/millrace/cmd/internal/lab/archive"
)

// Verdict is what an interval says.
type Verdict int

// The verdicts.
const (
	// NotMeasured: the windows scatter too much to say. A busy machine is no reason to fail.
	NotMeasured Verdict = iota
	Fine
	Slower
)

// String returns the verdict as the table has it.
func (v Verdict) String() string { return [...]string{"NOT MEASURED", "", "SLOWER"}[v] }

const (
	// slowdown is the rise of processor time an operation that is not accepted.
	slowdown = 0.03
	// mustFind is the rise that must be excluded before a program counts as fine.
	mustFind = 0.05
	// confidence of an interval is 99 %: this many standard deviations.
	confidence = 2.576
	// minPairs is how many pairs of windows an interval needs.
	minPairs = 8
)

// Interval is the ratio of two programs under one load, with its 99 % confidence interval. Each pair of
// windows, one right after the other, gives a ratio: a stretch of time in which the machine was slow is in
// both. Estimate and interval are those of Hodges and Lehmann: medians of the means of any two pairs. They
// assume no distribution but that it is symmetric, and a window in which a neighbour had the processor does
// not move them.
type Interval struct {
	Point     string
	Ratio     float64
	Low, High float64
	Pairs     int
	Before    float64 // median of the figure itself
}

// intervalOf compares windows, pair by pair.
func intervalOf(point string, before, after []float64) Interval {
	var logs []float64
	for i := range min(len(before), len(after)) {
		if before[i] > 0 && after[i] > 0 {
			logs = append(logs, math.Log(after[i]/before[i]))
		}
	}
	i := Interval{Point: point, Ratio: 1, Low: 0, High: math.Inf(1), Pairs: len(logs), Before: median(before)}
	if len(logs) == 0 {
		return i
	}
	var means []float64
	for a := range logs {
		for b := range a + 1 {
			means = append(means, (logs[a]+logs[b])/2)
		}
	}
	slices.Sort(means)
	i.Ratio = math.Exp(median(means))
	n := float64(len(logs))
	if cut := int(n*(n+1)/4 - confidence*math.Sqrt(n*(n+1)*(2*n+1)/24)); cut >= 0 && len(logs) >= minPairs {
		i.Low, i.High = math.Exp(means[cut]), math.Exp(means[len(means)-1-cut])
	}
	return i
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(of))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// Verdict judges the interval.
func (i Interval) Verdict() Verdict {
	switch {
	case i.Ratio >= 1+slowdown && i.Low > 1:
		return Slower
	case i.High < 1, i.Ratio < 1+slowdown && i.High < 1+mustFind && i.High-i.Low < 2*mustFind:
		return Fine
	}
	return NotMeasured
}

// String returns the line of the interval.
func (i Interval) String() string {
	return fmt.Sprintf("%-14s %9.1f   %.3f  [%.3f, %.3f]  %3d pairs  %v", i.Point, i.Before, i.Ratio, i.Low, i.High, i.Pairs, i.Verdict())
}

// intervals compares the processor time of two runs, load by load.
func intervals(before, after *archive.Run) []Interval {
	var all []Interval
	for p := range before.Points {
		var figures [2][]float64
		for side, run := range []*archive.Run{before, after} {
			repeats := slices.Clone(run.Points[p].Repeats)
			slices.SortFunc(repeats, func(a, b archive.Repeat) int { return cmp.Compare(a.Order, b.Order) })
			for _, r := range repeats {
				figures[side] = append(figures[side], r.Figures[archive.CPUUsPerOp.Name])
			}
		}
		all = append(all, intervalOf(before.Points[p].Name, figures[0], figures[1]))
	}
	return all
}
